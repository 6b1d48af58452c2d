/* Loops of a private step. Each has a twin in Python that tests compare it with. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1024
#define AHEAD 8

/* As in normal_stream.py: where a float of 32 bits is not enough. */
#define NEAR_ZERO (1u << 24)
#define NEAR_ONE (1u << 23)

/* Philox 4x64 with 10 rounds (Salmon et al. 2011), as numpy has it. */
static void philox(const uint64_t *counter, const uint64_t *key, uint64_t *out) {
  uint64_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint64_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    unsigned __int128 even = (unsigned __int128)0xD2E7470EE14C6C93u * c0;
    unsigned __int128 odd = (unsigned __int128)0xCA5A826395121157u * c2;
    c0 = (uint64_t)(odd >> 64) ^ c1 ^ k0;
    c2 = (uint64_t)(even >> 64) ^ c3 ^ k1;
    c1 = (uint64_t)odd;
    c3 = (uint64_t)even;
    k0 += 0x9E3779B97F4A7C15u;
    k1 += 0xBB67AE8584CAA73Bu;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/* The next words of a stream: counter[4], key[2], last block[4], how many of it were used. */
void next_words(uint64_t *stream, uint64_t *out, int64_t count) {
  uint64_t *counter = stream, *key = stream + 4, *block = stream + 6, *used = stream + 10;
  for (int64_t i = 0; i < count;) {
    if (*used < 4) {
      out[i++] = block[(*used)++];
      continue;
    }
    for (int place = 0; place < 4 && ++counter[place] == 0; place++) {
    }
    if (i + 4 <= count) {
      philox(counter, key, out + i);
      i += 4;
    } else {
      philox(counter, key, block);
      *used = 0;
    }
  }
}

static inline int is_end(uint32_t word) { return word + NEAR_ONE < NEAR_ONE + NEAR_ZERO; }

/* -2 log x for x > 0, with the polynomial of the Cephes library. */
static inline float minus_two_log(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  int32_t exponent = (int32_t)(bits - 0x3f3504f3u) >> 23;
  bits -= (uint32_t)exponent << 23;
  float f;
  memcpy(&f, &bits, 4);
  f -= 1.0f;
  float square = f * f, scale = (float)exponent;
  float y = 7.0376836292e-2f;
  y = y * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  y = y * f * square - 2.12194440e-4f * scale - 0.5f * square;
  return -2.0f * (f + y + 0.693359375f * scale);
}

/* The same in double precision, from 96 bits of the uniform. */
static double end_square(uint32_t word, uint64_t more) {
  double fraction = ((double)more + 0.5) * 0x1p-64;
  if (word < NEAR_ZERO) return -2.0 * log(((double)word + fraction) * 0x1p-32);
  return -2.0 * log1p(-(4294967296.0 - (double)word - fraction) * 0x1p-32);
}

int64_t count_ends(const uint32_t *words, int64_t count) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; i++) found += is_end(words[i]);
  return found;
}

/* first[i], second[i] = radius of uniforms[i] times cosine, sine of pi angles[i] / 2^31. */
void make_pairs(float *restrict first, float *restrict second, const uint32_t *restrict uniforms,
                const int32_t *restrict angles, int64_t count, const uint64_t *restrict more) {
  float radii[CHUNK];
  for (int64_t start = 0; start < count; start += CHUNK) {
    int64_t size = count - start < CHUNK ? count - start : CHUNK;
    const uint32_t *words = uniforms + start;
    /* What comes out for an end, 0 among them, is overwritten. */
    for (int64_t i = 0; i < size; i++)
      radii[i] = sqrtf(minus_two_log((float)words[i] * 0x1p-32f));
    for (int64_t i = 0; i < size; i++)
      if (is_end(words[i])) radii[i] = (float)sqrt(end_square(words[i], *more++));
    for (int64_t i = 0; i < size; i++) {
      /* A quarter turn is 2^30; what is left of it lies within an eighth turn of 0. */
      int32_t angle = angles[start + i];
      int32_t quarters = (int32_t)(((int64_t)angle + (1 << 29)) >> 30);
      int32_t left = (int32_t)((uint32_t)angle - ((uint32_t)quarters << 30));
      float x = (float)left * 1.4629180792671596e-9f;
      float z = x * x;
      float sine = x + x * z * (-1.6666654611e-1f + z * (8.3321608736e-3f - z * 1.9515295891e-4f));
      float cosine = 1.0f - 0.5f * z +
                     z * z * (4.166664568298827e-2f +
                              z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
      float c = quarters & 1 ? sine : cosine, s = quarters & 1 ? cosine : sine;
      first[start + i] = radii[i] * ((quarters + 1) & 2 ? -c : c);
      second[start + i] = radii[i] * (quarters & 2 ? -s : s);
    }
  }
}

static int fill(float *values, int64_t count, uint64_t *stream, int64_t pairs_at_a_time) {
  uint64_t *words = malloc((size_t)pairs_at_a_time * 2 * sizeof(uint64_t));
  float *sines = malloc((size_t)pairs_at_a_time * sizeof(float));
  int is_done = words && sines;
  for (int64_t start = 0; is_done && start < count; start += 2 * pairs_at_a_time) {
    int64_t left = count - start;
    int64_t size = left < 2 * pairs_at_a_time ? left : 2 * pairs_at_a_time;
    int64_t num_pairs = (size + 1) / 2, num_sines = size - num_pairs;
    const uint32_t *halves = (const uint32_t *)words;
    uint64_t *more = words + num_pairs;
    next_words(stream, words, num_pairs);
    next_words(stream, more, count_ends(halves, num_pairs));
    float *first = values + start;
    make_pairs(first, sines, halves, (const int32_t *)halves + num_pairs, num_pairs, more);
    memcpy(first + num_pairs, sines, (size_t)num_sines * sizeof(float));
  }
  free(words);
  free(sines);
  return is_done;
}

/* Fills each of num_streams equal parts from a stream of its own. 0 if there is no memory. */
int fill_streams(float *values, int64_t count, uint64_t *streams, int64_t num_streams,
                 int64_t pairs_at_a_time, int num_threads) {
  int is_done = 1;
#pragma omp parallel for num_threads(num_threads) schedule(static) reduction(& : is_done)
  for (int64_t s = 0; s < num_streams; s++) {
    int64_t first = count * s / num_streams, last = count * (s + 1) / num_streams;
    is_done &= fill(values + first, last - first, streams + 11 * s, pairs_at_a_time);
  }
  return is_done;
}

/* weights[row] -= lost weights[row] - minus_drift means[row] - weight_noise normals, and
   moved = memory means[row] + mean_noise normals. Rows are distinct; lost may be null. */
void move_rows(float *weights, const float *means, const int64_t *rows, int64_t count, int64_t dim,
               const float *lost, const float *minus_drift, const float *memory,
               const float *weight_noise, const float *mean_noise, const float *normals,
               float *moved, int num_threads) {
#pragma omp parallel for num_threads(num_threads) schedule(static)
  for (int64_t i = 0; i < count; i++) {
    if (i + AHEAD < count)
      for (int64_t j = 0; j < dim; j += 16) {
        __builtin_prefetch(weights + rows[i + AHEAD] * dim + j, 1);
        __builtin_prefetch(means + rows[i + AHEAD] * dim + j, 0);
      }
    float *restrict weight = weights + rows[i] * dim;
    const float *restrict mean = means + rows[i] * dim, *restrict normal = normals + i * dim;
    float *restrict next = moved + i * dim;
    float share = lost ? lost[i] : 0.0f;
    float a = minus_drift[i], b = weight_noise[i], c = memory[i], d = mean_noise[i];
    for (int64_t j = 0; j < dim; j++) {
      weight[j] += a * mean[j] + b * normal[j] - share * weight[j];
      next[j] = c * mean[j] + d * normal[j];
    }
  }
}

/* table[row] = values + scale added, for distinct rows; added may be null. */
void write_rows(float *table, const int64_t *rows, int64_t count, int64_t dim, const float *values,
                const float *added, float scale, int num_threads) {
#pragma omp parallel for num_threads(num_threads) schedule(static)
  for (int64_t i = 0; i < count; i++) {
    if (i + AHEAD < count)
      for (int64_t j = 0; j < dim; j += 16)
        __builtin_prefetch(table + rows[i + AHEAD] * dim + j, 1);
    float *restrict row = table + rows[i] * dim;
    const float *restrict value = values + i * dim;
    if (!added) {
      memcpy(row, value, (size_t)dim * sizeof(float));
      continue;
    }
    const float *restrict more = added + i * dim;
    for (int64_t j = 0; j < dim; j++) row[j] = value[j] + scale * more[j];
  }
}
