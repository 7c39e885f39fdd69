// Rates and times in words. Times are those of the browser.
// What data names is looked up in tables that have nothing else: no `constructor`.
const FIELDS = { __proto__: null, auth: "login", client: "client", sender: "sender", address: "address", local: "local user", helo: "HELO", recipient: "recipient", customer: "customer", domain: "domain" };
// One key as the mailbox that a person knows, and what it is.
function split(key) {
  const [, field, rest] = /^([a-z_]+):(.+)$/s.exec(key) || [];
  const isOne = rest !== undefined && !rest.replaceAll(",,", "").includes(",") && FIELDS[field];
  return isOne && field !== "local" ? { who: rest.replaceAll(",,", ","), what: FIELDS[field] } : { who: key, what: "" };
}
const mailbox = (key) => visible(split(key).who, NAME);
const link = (key) => element("a", name(split(key).who), { href: "#/key/" + encodeURIComponent(key) });

const UNITS = {
  __proto__: null,
  messages: ["sent", "message", "messages"],
  recipients: ["wrote to", "recipient", "recipients"],
  unique_recipients: ["wrote to", "different recipient", "different recipients"],
  unique_senders: ["sent as", "sender", "different senders"],
  unique_clients: ["was used from", "client address", "client addresses"],
  bytes: ["sent", "byte", "bytes"],
  connections: ["made", "connection", "connections"],
  rejected_recipients: ["had refused", "recipient", "recipients"],
  auth_failures: ["failed to log in", "time", "times"],
  failed_recipients: ["failed to reach", "recipient", "recipients"],
  unknown_recipients: ["wrote to", "recipient that does not exist", "recipients that do not exist"],
  failed_share: ["failed to reach", "percent of its recipients", "percent of its recipients"],
  unknown_share: ["wrote in vain to", "percent of its recipients", "percent of its recipients"],
  per_mail: ["sent", "message", "messages"],
  per_rcpt: ["wrote to", "recipient", "recipients"],
  per_addr: ["wrote to", "different recipient", "different recipients"],
  per_conn: ["made", "connection", "connections"],
  per_cmd: ["gave", "command", "commands"],
};
const CALENDAR = { __proto__: null, hourly: "in this hour", daily: "today", weekly: "this week", monthly: "this month" };
const PERIODS = { __proto__: null, "1h": "in the last hour", "1d": "in the last day", "1w": "in the last week", "1m": "in the last minute" };

function size(bytes) {
  const power = Math.min(4, Math.max(0, Math.floor(Math.log(Math.max(bytes, 1)) / Math.log(1024))));
  return power ? `${decimals(1)(bytes / 1024 ** power)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}` : whole(bytes);
}
// What a record counts, by the policy and the unit, or by the mode.
function counted(state) {
  const [policy, unit] = state.mode && state.mode.includes("/") ? state.mode.split("/") : [null, state.mode];
  return { policy, unit, words: UNITS[unit] || ["had", "event", "events"], isBytes: unit === "bytes" };
}
// A number of it: what is close to a whole number is that.
const amount = (state, n) => (counted(state).isBytes ? size(n) : whole(Math.round(n)));
function within(state) {
  if (state.algorithm === "calendar") return CALENDAR[state.period_text] || state.period_text || "";
  if (state.algorithm === "bucket") return "of a burst";
  return PERIODS[state.period_text] || (state.period_text ? `in the last ${state.period_text}` : "");
}
// `sent 1,012 messages in the last hour; the limit of outbound is 1,000`.
function sentence(row, isTotal) {
  const { state } = row;
  if (isTotal) return `all of ${mailbox(row.pasted)} together ${sentence(row)}`;
  const { policy, words: [verb, one, several] } = counted(state);
  if (state.decided_by === "deny" && row.override) return denial(row.override);
  if (state.decided_by !== "rate") return visible(row.reason, 300);
  const n = amount(state, state.rate);
  const of = policy ? ` of ${visible(policy, 60)}` : "";
  return `${verb} ${n} ${n === "1" ? one : several} ${within(state)}; the limit${of} is ${amount(state, state.limit)}`;
}
// `web=token:desk` is desk, and `uid=0 sudo=alice` alice: by which way somebody has come is in the
// log.
function person(who) {
  const [, , uid, sudo] = /^(uid=(\d+)).*?(?: sudo=(\S+))?$/s.exec(who) || [];
  if (sudo) return visible(sudo, 80);
  if (uid !== undefined) return uid === "0" ? "root" : `user ${uid} of the mail server`;
  return visible(who.replace(/^(web=)?(token|person):/, ""), 80);
}
const by = ({ who, reason }) => `, by ${person(who)}${reason ? `: ${visible(reason, 200)}` : ""}`;
const denial = (one) => `denied ${one.until ? "until " + when(one.until) : "until somebody ends that"}${by(one)}`;
const permission = (one) => `allowed ${one.until ? "until " + when(one.until) : "forever"}${by(one)}`;
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// `53 minutes`, `2 hours 5 minutes`, `3 days`.
function span(seconds) {
  const part = (n, unit) => (n ? many(n, unit, unit + "s") : "");
  if (seconds < 60) return part(Math.max(1, Math.ceil(seconds)), "second");
  const minutes = Math.ceil(seconds / 60), hours = Math.ceil(minutes / 60);
  const both = minutes < 1440 ? [part(Math.floor(minutes / 60), "hour"), part(minutes % 60, "minute")]
    : [part(Math.floor(hours / 24), "day"), part(hours % 24, "hour")];
  return both.filter(Boolean).join(" ");
}
const isToday = (date) => date.toDateString() === new Date().toDateString();
// `14:32`, and with the day where that is another.
function when(iso) {
  const date = new Date(iso);
  const clock = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const day = date.toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", year: date.getFullYear() === new Date().getFullYear() ? undefined : "numeric" });
  return isToday(date) ? clock : `${day}, ${clock}`;
}
const exact = (iso) => new Date(iso).toLocaleString("en-GB", { dateStyle: "full", timeStyle: "long" });
// The same as an element, whose title has the second and the zone.
const at = (iso) => element("time", when(iso), { datetime: iso, title: exact(iso) });
// `in 53 minutes, at 14:32`, kept right while time goes on.
function until(iso) {
  const made = element("time", "", { datetime: iso, title: exact(iso), class: "until" });
  showUntil(made);
  return made;
}
function showUntil(made) {
  const iso = made.getAttribute("datetime"), left = (Date.parse(iso) - Date.now()) / 1000;
  const text = left <= 0 ? `since ${when(iso)}` : `in ${span(left)}, at ${when(iso)}`;
  if (made.textContent !== text) made.textContent = text;
}
setInterval(() => document.querySelectorAll("time.until").forEach(showUntil), 5000);
// Seconds since 1970 on the clock of the browser, as charts take them.
function wall(iso) {
  const date = new Date(iso);
  return date.getTime() / 1000 - date.getTimezoneOffset() * 60;
}
const zone = () => `${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
// When an event passes again.
function free(state) {
  if (state.decided_by === "deny") return "Not until the denial ends";
  if (!state.free_at) return "Not by itself";
  return ["Free ", until(state.free_at)];
}
