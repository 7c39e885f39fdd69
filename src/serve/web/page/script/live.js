// The stream of events. It connects again by itself, and what is missed meanwhile is in the next
// state.
let stream = null, retry = 0, latest = null, isLost = false;

function listen() {
  hush();
  stream = new EventSource("/api/v1/events");
  stream.addEventListener("state", (event) => {
    const news = JSON.parse(event.data);
    lost(news.problem ? `The database cannot be read: ${visible(news.problem, 400)}` : "");
    if (!news.problem) onState(news);
  });
  for (const kind of ["crossing", "change"]) {
    stream.addEventListener(kind, (event) => {
      const { pasted, key } = JSON.parse(event.data);
      if (view && view.happened) view.happened(pasted ?? key);
    });
  }
  stream.addEventListener("missed", refresh);
  // Another process has another token against forged requests.
  stream.addEventListener("open", async () => {
    if (isLost) me = await get("me").catch(() => me);
  });
  stream.addEventListener("error", () => {
    lost("The connection is lost: what is shown may be old. Trying again…");
    if (stream && stream.readyState === EventSource.CLOSED) {
      clearTimeout(retry);
      retry = setTimeout(reconnect, 2000);
    }
  });
}
function hush() {
  clearTimeout(retry);
  if (stream) stream.close();
  stream = null;
}
// The reply was a problem, which the stream does not show.
async function reconnect() {
  try {
    me = await get("me");
    listen();
  } catch (problem) {
    if (problem.status === 401) return;
    caught(problem, (text) => lost(`${text} Trying again…`));
    retry = setTimeout(reconnect, 2000);
  }
}
function lost(text) {
  isLost = text !== "";
  fill(document.getElementById("lost"), text, isLost ? element("p", text) : []);
  document.body.classList.toggle("is-lost", isLost);
}

function onState(news) {
  const before = latest;
  latest = news;
  for (const id of Object.keys(LISTS)) {
    const n = news.status[id];
    fill(document.querySelector(`#sections [data-count=${id}]`), String(n), n ? whole(n) : []);
  }
  const title = view ? view.title : "";
  document.title = `${news.status.blocked ? `(${whole(news.status.blocked)}) ` : ""}${title} · exirate desk`;
  const unread = news.status.unread.join("; ");
  fill(document.getElementById("unread"), unread, unread ? `Not all could be read: ${visible(unread, 300)}` : []);
  if (view) view.state(news);
  if (before) announce(before, news);
}
// Who has come, for those who do not see it; seldom, so that it can be listened to.
const QUIET = 15000;
let told = 0, fresh = new Set();
function announce(before, news) {
  const known = new Set(before.keys.keys.map((row) => row.pasted));
  for (const row of news.keys.keys) if (!known.has(row.pasted)) fresh.add(row.pasted);
  if (!fresh.size || performance.now() - told < QUIET) return;
  told = performance.now();
  const names = [...fresh].slice(0, 2).map(mailbox).join(", ");
  document.getElementById("news").textContent = `Blocked now: ${names}${fresh.size > 2 ? ` and ${whole(fresh.size - 2)} more` : ""}`;
  fresh = new Set();
}
