// What the service is asked. A problem is shown by its detail, which says what would be right.
let me = null;
const mayHelp = () => me !== null && me.role === "help";

class Problem extends Error {
  constructor(detail, status) {
    super(detail);
    this.status = status;
  }
}

async function ask(method, path, body, signal) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (me && method !== "GET") headers["X-CSRF-Token"] = me.csrf;
  let reply, json = null;
  try {
    reply = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
    json = await reply.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The service cannot be reached.", 0);
  }
  if (reply.ok) return json;
  if (reply.status === 401 && me) signIn("You are no longer signed in: " + (json.detail || ""));
  throw new Problem((json && json.detail) || `The service replied with status ${reply.status}.`, reply.status);
}
// Shows a problem; what is no problem is a fault of the page.
function caught(problem, show) {
  if (!(problem instanceof Problem)) throw problem;
  show(visible(problem.message));
}
const problemText = (text) => element("p", visible(text, 400), { class: "problem" });
function get(route, query, signal) {
  const parts = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(parts).toString();
  return ask("GET", "/api/v1/" + route + (text ? "?" + text : ""), undefined, signal);
}
const change = (verb, body) => ask("POST", "/api/v1/" + verb, body);
