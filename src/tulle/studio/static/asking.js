// Questions to the studio. Of those that come while one is under way, the newest alone is asked.

const PAUSE_MS = 200;

export async function ask(path) {
  let reply;
  try {
    reply = await fetch(path, { credentials: "same-origin" });
  } catch {
    return { error: "The studio does not answer; was it stopped?", field: null };
  }
  if (reply.status === 401) {
    return { error: "The studio was started anew; open the address that it printed.", field: null };
  }
  try {
    const data = await reply.json();
    return reply.ok ? { data } : data;
  } catch {
    return { error: `The studio failed (${reply.status}); see where it was started.`, field: null };
  }
}

export function answerPath(panel, settings) {
  return `/api/answers/${panel}?${new URLSearchParams(settings)}`;
}

// `work` gets the settings and a function that tells whether they are still the newest.
export function newestOnly(work) {
  let version = 0;
  let isBusy = false;
  let timer;

  async function run(settings) {
    if (isBusy) return;
    isBusy = true;
    const own = version;
    try {
      await work(settings(), () => own === version);
    } finally {
      isBusy = false;
    }
    if (own !== version) await run(settings);
  }

  return (settings) => {
    version += 1;
    clearTimeout(timer);
    timer = setTimeout(() => run(settings), PAUSE_MS);
  };
}
