/* Mosaic's loops over rows. Each has a twin in row_loops.py that tests compare it with.

   All sums are of whole numbers, so that threads may take ranges of rows and add up what they have
   found, in any order. Each loop works on CHUNK rows at a time: what is computed for them stays in
   the first cache, by loops that a compiler turns into vector instructions, and then it is added up
   row by row.

   Nothing overflows: weights are below 2^32, which is checked here, and probabilities, factors and
   labels are at most 2^31 in size, so that products are below 2^63. Terms beyond 2^32 are refused,
   and sums of 2^30 of them are at most 2^62. Where the twins would wrap around, as for what nobody
   may release anyway, so do these loops: they are compiled with -fwrapv. Right shifts of negative
   numbers round down, as numpy's do and as every compiler that is used does (tests assert it).

   Every number that a place in memory follows from is compared with the length of its table first:
   a place beyond it ends the loop. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNK 128
/* Labels, probabilities and factors are parts of 2^30 (label_parts.py, cell_sums.py). */
#define PART_BITS 30
/* As in row_loops.py: largest term, largest weight in a sum, bits of squares, room of values. */
#define MAX_TERM ((int64_t)1 << 32)
#define WEIGHT_BITS 32
#define SQUARE_BITS 10
#define ROOM_BITS 12
#define MOST_CHARGED ((int64_t)1 << 30)
#define UNPAYABLE 2147483648.0
/* What a loop returns: nothing is wrong, or what is. */
#define FINE 0
#define BEYOND_TABLE 1
#define BEYOND_BOUNDS 2

static inline int64_t length_of(int64_t start, int64_t stop) {
  return stop - start < CHUNK ? stop - start : CHUNK;
}

/* Whether all cells are places of a table; a negative one is none. */
static inline int fits(const int32_t *cells, int64_t count, int64_t num_cells) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++)
    largest = (uint32_t)cells[i] > largest ? (uint32_t)cells[i] : largest;
  return (int64_t)largest < num_cells;
}

/* The weights of some rows; a stride of 0 gives all rows the same. Whether all are in bounds. */
static inline int load(int64_t *own, const int64_t *weights, int64_t stride, int64_t first,
                       int64_t count) {
  uint64_t bits = 0;
  if (stride)
    for (int64_t i = 0; i < count; i++) bits |= (uint64_t)(own[i] = weights[first + i]);
  else
    for (int64_t i = 0; i < count; i++) bits |= (uint64_t)(own[i] = *weights);
  return !(bits >> WEIGHT_BITS);
}

static inline int is_beyond(int64_t term) {
  return (uint64_t)(term + MAX_TERM) > (uint64_t)(2 * MAX_TERM);
}

/* Log odds of some rows as places in the table of probabilities, beyond which they are cut. */
static inline int32_t find_places(int32_t *places, const int32_t *log_odds, const int32_t *offsets,
                                  int32_t most, int64_t first, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    int32_t steps = log_odds[first + i];
    if (offsets) steps += offsets[first + i];
    steps = steps < -most ? -most : steps;
    places[i] = (steps > most ? most : steps) + most;
    largest = places[i] > largest ? places[i] : largest;
  }
  return largest;
}

/* found[i] = table[places[i]], one by one: loads beat the gather instructions of most processors,
   which a compiler would choose here. The empty line of assembler keeps it from that. */
#define LOOK_UP(found, table, places)         \
  for (int64_t i = 0; i < count; i++) {       \
    (found)[i] = (table)[(places)[i]];        \
    __asm__ volatile("" : : : );              \
  }

/* One column of a table: address of its ids, bytes of one, address, length and size of its lookup. */
typedef struct {
  int64_t ids, width, lookup, length, size;
} Column;

#define LOAD_IDS(type)                                                      \
  for (int64_t i = 0; i < count; i++) {                                     \
    found[i] = (uint32_t)((const type *)(intptr_t)column->ids)[first + i]; \
    largest = found[i] > largest ? found[i] : largest;                      \
  }

int find_cells(int32_t *restrict cells, const Column *columns, int64_t num_columns, int64_t start,
               int64_t stop) {
  uint32_t found[CHUNK], own[CHUNK];
  for (int64_t first = start; first < stop; first += CHUNK) {
    int64_t count = length_of(first, stop);
    for (int64_t i = 0; i < count; i++) own[i] = 0;
    for (const Column *column = columns; column < columns + num_columns; column++) {
      const int32_t *lookup = (const int32_t *)(intptr_t)column->lookup;
      uint32_t largest = 0, size = (uint32_t)column->size;
      if (column->width == 1) {
        LOAD_IDS(uint8_t)
      } else if (column->width == 2) {
        LOAD_IDS(uint16_t)
      } else {
        LOAD_IDS(uint32_t)
      }
      if ((int64_t)largest >= column->length) return BEYOND_TABLE;
      for (int64_t i = 0; i < count; i++) own[i] = own[i] * size + (uint32_t)lookup[found[i]];
    }
    for (int64_t i = 0; i < count; i++) cells[first + i] = (int32_t)own[i];
  }
  return FINE;
}

#define ADD_LOOKUPS(name, type)                                                             \
  int name(type *restrict totals, const type *restrict numbers, int64_t num_cells, const int32_t *cells,      \
           int64_t start, int64_t stop) {                                                   \
    for (int64_t first = start; first < stop; first += CHUNK) {                             \
      int64_t count = length_of(first, stop);                                               \
      if (!fits(cells + first, count, num_cells)) return BEYOND_TABLE;                      \
      for (int64_t i = first; i < first + count; i++) totals[i] += numbers[cells[i]];       \
    }                                                                                       \
    return FINE;                                                                            \
  }

ADD_LOOKUPS(add_lookups_32, int32_t)
ADD_LOOKUPS(add_lookups_64, int64_t)

int add_products(int64_t *restrict totals, const int64_t *restrict numbers, int64_t num_cells, const int32_t *cells,
                 const int64_t *weights, int64_t stride, int64_t start, int64_t stop) {
  int64_t own[CHUNK];
  for (int64_t first = start; first < stop; first += CHUNK) {
    int64_t count = length_of(first, stop);
    if (!fits(cells + first, count, num_cells)) return BEYOND_TABLE;
    if (!load(own, weights, stride, first, count)) return BEYOND_BOUNDS;
    for (int64_t i = 0; i < count; i++) totals[first + i] += numbers[cells[first + i]] * own[i];
  }
  return FINE;
}

/* Product, quotients, square root, in this order and each rounded: what numpy does. */
int find_weights(int64_t *restrict weights, const int64_t *restrict wanted, int64_t num_cells, const int32_t *cells,
                 const int64_t *totals, const int64_t *limits, int64_t stride, const int64_t *costs,
                 int64_t start, int64_t stop) {
  double reals[CHUNK];
  for (int64_t first = start; first < stop; first += CHUNK) {
    int64_t count = length_of(first, stop);
    const int32_t *places = cells + first;
    if (!fits(places, count, num_cells)) return BEYOND_TABLE;
    for (int64_t i = 0; i < count; i++) reals[i] = (double)wanted[places[i]];
    if (stride)
      for (int64_t i = 0; i < count; i++) reals[i] *= (double)limits[first + i];
    else
      for (int64_t i = 0; i < count; i++) reals[i] *= (double)*limits;
    for (int64_t i = 0; i < count; i++) reals[i] /= (double)totals[first + i];
    if (costs)
      for (int64_t i = 0; i < count; i++) reals[i] /= (double)costs[first + i];
    for (int64_t i = 0; i < count; i++) {
      double root = sqrt(reals[i]);
      /* Also what is no number, as 0 / 0, becomes a weight that no row can pay. */
      root = root < UNPAYABLE ? root : UNPAYABLE;
      int64_t weight = (int64_t)root - 1;
      weights[first + i] = weight > 0 ? weight : 0;
    }
  }
  return FINE;
}

/* Whether every row can pay: weight^2 * cost <= limit - spent. Changes nothing. */
int can_pay(const int64_t *weights, const int64_t *limits, int64_t stride, const int64_t *spent,
            const int64_t *costs, int64_t start, int64_t stop) {
  for (int64_t first = start; first < stop; first += CHUNK) {
    int64_t end = first + length_of(first, stop);
    int wrong = 0;
    for (int64_t i = first; i < end; i++)
      wrong |= (weights[i] < 0) | (weights[i] > MOST_CHARGED);
    /* Squares are taken of no other weights: they might not fit 64 bits. */
    if (wrong) return BEYOND_BOUNDS;
    if (costs) {
      for (int64_t i = first; i < end; i++) {
        int64_t left = limits[stride ? i : 0] - spent[i];
        /* 128 bits: the product of a square and a cost may be beyond 64. */
        __int128 asked = (__int128)(weights[i] * weights[i]) * costs[i];
        wrong |= (costs[i] < 1) | (asked > left);
      }
    } else if (stride) {
      for (int64_t i = first; i < end; i++)
        wrong |= weights[i] * weights[i] > limits[i] - spent[i];
    } else {
      for (int64_t i = first; i < end; i++)
        wrong |= weights[i] * weights[i] > *limits - spent[i];
    }
    if (wrong) return BEYOND_BOUNDS;
  }
  return FINE;
}

/* Precondition: every row can pay, so that sums stay within limits. */
int charge(int64_t *restrict spent, const int64_t *restrict weights, const int64_t *costs, int64_t start,
           int64_t stop) {
  if (costs)
    for (int64_t i = start; i < stop; i++) spent[i] += weights[i] * weights[i] * costs[i];
  else
    for (int64_t i = start; i < stop; i++) spent[i] += weights[i] * weights[i];
  return FINE;
}

int sum_terms(int64_t *sums, int64_t num_cells, const int32_t *cells, const int64_t *terms,
              int64_t stride, int64_t start, int64_t stop) {
  for (int64_t first = start; first < stop; first += CHUNK) {
    int64_t count = length_of(first, stop), end = first + count;
    int wrong = 0;
    if (!fits(cells + first, count, num_cells)) return BEYOND_TABLE;
    if (stride)
      for (int64_t i = first; i < end; i++) wrong |= is_beyond(terms[i]);
    else
      wrong = is_beyond(*terms);
    if (wrong) return BEYOND_BOUNDS;
    if (stride)
      for (int64_t i = first; i < end; i++) sums[cells[i]] += terms[i];
    else
      for (int64_t i = first; i < end; i++) sums[cells[i]] += *terms;
  }
  return FINE;
}

int sum_labels(int64_t *sums, int64_t num_cells, const int32_t *cells, const int32_t *labels,
               const int64_t *weights, int64_t stride, int64_t start, int64_t stop) {
  int64_t terms[CHUNK];
  for (int64_t first = start; first < stop; first += CHUNK) {
    int64_t count = length_of(first, stop);
    int wrong = 0;
    if (!fits(cells + first, count, num_cells)) return BEYOND_TABLE;
    if (!load(terms, weights, stride, first, count)) return BEYOND_BOUNDS;
    for (int64_t i = 0; i < count; i++) {
      terms[i] = terms[i] * labels[first + i] >> PART_BITS;
      wrong |= is_beyond(terms[i]);
    }
    if (wrong) return BEYOND_BOUNDS;
    for (int64_t i = 0; i < count; i++) sums[cells[first + i]] += terms[i];
  }
  return FINE;
}

/* Sums of residuals and of predictions, side by side for each cell. */
int sum_rows(int64_t *sums, int64_t num_cells, const int32_t *cells, const int32_t *labels,
             const int32_t *log_odds, const int32_t *offsets, const int64_t *weights,
             int64_t stride, const int32_t *probs, const int32_t *capped, const int32_t *factors,
             int32_t most, const int32_t *caps, int32_t are_values, int32_t positives_only,
             int64_t start, int64_t stop) {
  int64_t own[CHUNK], residuals[CHUNK], predicted[CHUNK];
  int32_t places[CHUNK], probs_of[CHUNK], num_whole = 0;
  /* Up to a place rows count in full, and most rows are not beyond it. */
  while (num_whole <= 2 * most && factors[num_whole] == 1 << PART_BITS) num_whole++;
  for (int64_t first = start; first < stop; first += CHUNK) {
    int64_t count = length_of(first, stop);
    const int32_t *label = labels + first, *cell = cells + first;
    int wrong = 0;
    if (!fits(cell, count, num_cells)) return BEYOND_TABLE;
    if (!load(own, weights, stride, first, count)) return BEYOND_BOUNDS;
    if (positives_only)
      for (int64_t i = 0; i < count; i++) own[i] = label[i] > 0 ? own[i] : 0;
    if (are_values)
      for (int64_t i = 0; i < count; i++) {
        int64_t smaller = own[i] - (own[i] >> ROOM_BITS) - 1;
        own[i] = smaller >= 1 << ROOM_BITS ? smaller : 0;
      }
    int32_t largest = find_places(places, log_odds, offsets, most, first, count);
    if (caps)
      for (int64_t i = 0; i < count; i++) {
        int64_t prob = probs[places[i]], cap = caps[first + i], factor = (int64_t)1 << PART_BITS;
        if (cap < prob)
          factor = (cap << PART_BITS) / prob;
        else
          cap = prob;
        predicted[i] = own[i] * cap >> PART_BITS;
        residuals[i] = own[i] * factor >> PART_BITS;
      }
    else
    {
      LOOK_UP(probs_of, capped, places)
      for (int64_t i = 0; i < count; i++) {
        predicted[i] = own[i] * probs_of[i] >> PART_BITS;
        residuals[i] = own[i];
      }
      if (largest >= num_whole)
        for (int64_t i = 0; i < count; i++)
          residuals[i] = own[i] * factors[places[i]] >> PART_BITS;
    }
    for (int64_t i = 0; i < count; i++) {
      residuals[i] = (residuals[i] * label[i] >> PART_BITS) - predicted[i];
      wrong |= is_beyond(residuals[i]) | is_beyond(predicted[i]);
    }
    if (wrong) return BEYOND_BOUNDS;
    for (int64_t i = 0; i < count; i++) {
      int64_t *both = sums + 2 * (ptrdiff_t)cell[i];
      both[0] += residuals[i];
      both[1] += predicted[i];
    }
  }
  return FINE;
}

/* Sums of predictions and of their squared weights, side by side for each cell. */
int sum_predicted(int64_t *sums, int64_t num_cells, const int32_t *cells, const int32_t *log_odds,
                  const int32_t *offsets, const int64_t *weights, int64_t stride,
                  const int8_t *shifts, const int32_t *probs, int32_t most, int64_t start,
                  int64_t stop) {
  int64_t own[CHUNK], squares[CHUNK];
  int32_t places[CHUNK], probs_of[CHUNK];
  int8_t shifts_of[CHUNK];
  for (int64_t first = start; first < stop; first += CHUNK) {
    int64_t count = length_of(first, stop);
    const int32_t *cell = cells + first;
    int wrong = 0;
    if (!fits(cell, count, num_cells)) return BEYOND_TABLE;
    if (!load(own, weights, stride, first, count)) return BEYOND_BOUNDS;
    find_places(places, log_odds, offsets, most, first, count);
    LOOK_UP(probs_of, probs, places)
    LOOK_UP(shifts_of, shifts, cell)
    for (int64_t i = 0; i < count; i++) {
      int64_t shift = shifts_of[i];
      int64_t down = shift > 0 ? shift : 0, up = shift < 0 ? -shift : 0;
      int64_t weighted = own[i] * probs_of[i] + ((int64_t)1 << (PART_BITS - 1));
      int64_t square = (own[i] >> down) << up;
      weighted >>= PART_BITS;
      square = square < MAX_TERM >> 1 ? square : MAX_TERM >> 1;
      square = square * weighted >> SQUARE_BITS;
      own[i] = weighted;
      squares[i] = square < MAX_TERM ? square : MAX_TERM;
      wrong |= is_beyond(weighted) | is_beyond(squares[i]);
    }
    if (wrong) return BEYOND_BOUNDS;
    for (int64_t i = 0; i < count; i++) {
      int64_t *both = sums + 2 * (ptrdiff_t)cell[i];
      both[0] += own[i];
      both[1] += squares[i];
    }
  }
  return FINE;
}
