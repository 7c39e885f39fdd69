// All of one identity.
const CLOSE = 0.8;

function identityView(main, key) {
  const { who, what } = split(key);
  const title = element("h1", [name(who), what ? element("span", what, { class: "what" }) : null], { tabindex: -1 });
  const verdict = element("div", READING, { class: "verdict" });
  // Where they are, and which, does not depend on what is shown: no other one comes under the pointer.
  // What stops it may be a total, which is of others as well: then that is unblocked, and it says so.
  let stop = key;
  const unblock = named("Unblock", key, (control) => act("unblock", { key: stop }, control));
  const buttons = element("div", mayHelp() ? [
    unblock,
    named("Allow for…", key, () => askForTime("allow", key)),
    named("Deny for…", key, () => askForTime("deny", key)),
  ] : [], { class: "buttons" });
  const part = () => element("div", []);
  const alarm = part(), holding = part(), rates = part(), sent = part(), overrides = part(), crossings = part(), clients = part(), changes = part();
  const parts = [alarm, holding, rates, sent, overrides, crossings, clients, changes];
  main.append(element("div", [title, buttons], { class: "head" }), verdict, ...parts);
  if (who.length > NAME) verdict.before(element("details", [element("summary", "The whole name"), element("p", element("bdi", visible(who)), { class: "text" })]));
  let busy = false, again = false;

  function show(identity, log, done, usage) {
    const { records, totals, suspicion } = identity;
    const denied = identity.overrides.find((one) => one.override === "deny");
    const allowed = identity.overrides.find((one) => one.override === "allow");
    fill(verdict, JSON.stringify([identity.refused, identity.reasons, identity.free_at, identity.overrides, totals, suspicion]), verdictOf(identity, denied, allowed));
    // Who is of one customer cannot reset its total.
    const total = denied || me.scope || records.some((row) => row.state.over) ? undefined : totals.find((row) => row.state.over);
    stop = total ? total.pasted : key;
    fill(unblock, stop, total ? `Unblock all of ${mailbox(stop)}` : ["Unblock", element("span", " " + mailbox(key), { class: "away" })]);
    unblock.classList.toggle("first", identity.refused || denied !== undefined);
    const isOpen = suspicion && suspicion.suspected;
    fill(alarm, JSON.stringify(suspicion) + mayHelp(), suspicion ? [element("h2", isOpen ? "Suspected" : "Habits"), ...habits(suspicion, isOpen, key)] : []);
    fill(rates, JSON.stringify([records, totals].map((all) => all.map(({ state, reason }) => [reason, state]))), [
      element("h2", "Rates and limits"), ...limits(records, totals),
    ]);
    showSent(sent, usage);
    fill(overrides, JSON.stringify(identity.overrides), identity.overrides.length ? [element("h2", "Allowed or denied"), overrideTable(identity.overrides)] : []);
    logged(crossings, "What happened", log, () => (log.crossings.length ? crossingTable(log) : null));
    fill(clients, JSON.stringify(log.clients), (log.clients || []).length ? [element("h2", "Where it came from"), plain(["Client", "#Crossings and refusals", "Latest"],
      log.clients.map((one) => [name(one.client), whole(one.events), at(one.last)]), "The addresses from which its latest crossings and refusals came.")] : []);
    logged(changes, "Who did what", done, () => (done.changes.length ? changeTable(done) : null));
  }
  // What is logged is read again where something else has changed, or the stream says so.
  let known = "", log = null, done = null, usage = null;
  // The mail server's queue may take longer than the database.
  async function readHeld() {
    const held = await orProblem(get("held", { key }));
    fill(holding, JSON.stringify(held) + mayHelp(), held.messages ? [element("h2", "Held and waiting mail"), heldTable(held, false), releaseButtons(key, held)] : []);
  }
  async function read(isAll) {
    if (isAll) known = "";
    if (busy) { again = true; return; }
    busy = true;
    try {
      do {
        again = false;
        const identity = await get("identity", { key });
        const now = JSON.stringify([identity.records.map(({ state }) => state.last_seen), identity.overrides, identity.suspicion?.answer]);
        if (now !== known) {
          known = now;
          readHeld();
          [log, done, usage] = await Promise.all([orProblem(get("crossings", { key, limit: PAGE })), orProblem(get("changes", { key, limit: PAGE })), orProblem(get("usage", { key }))]);
        }
        if (main.contains(title)) show(identity, log, done, usage);
      } while (again);
    } catch (problem) {
      caught(problem, (text) => fill(verdict, text, problemText(text)));
    } finally {
      busy = false;
    }
  }
  const all = () => read(true);
  return { title: mailbox(key), state: () => document.hidden || read(false), refresh: all, happened: (other) => { if (other === key) all(); } };
}

// What is logged may not be readable where the rates are.
const orProblem = (asked) => asked.catch((problem) => {
  let log;
  caught(problem, (text) => { log = { problem: text }; });
  return log;
});
function logged(parent, title, log, table) {
  const shown = log.problem ? problemText(log.problem) : table();
  fill(parent, JSON.stringify(log), shown ? [element("h2", title), shown] : []);
}

function verdictOf({ refused, reasons, free_at: end, records, totals, suspicion }, denied, allowed) {
  const all = [...records, ...totals].filter((row) => row.state.over);
  if (denied) return [element("p", capital(denial(denied)) + ".", { class: "big over" })];
  if (refused) {
    const why = all.length ? all.map((row) => sentence(row, totals.includes(row))) : reasons.map((reason) => visible(reason, 300));
    return [element("p", ["Blocked", end ? [". Free ", until(end)] : []].flat(), { class: "big over" }), ...why.map((one) => element("p", capital(one) + "."))];
  }
  const close = records.some((row) => row.state.share >= CLOSE);
  if (allowed) return [element("p", capital(permission(allowed)) + ".", { class: "big" })];
  const becomes = suspicion && suspicion.suspected && (suspicion.blocked ? "its mail is refused" : { hold: "its mail is held", defer: "its mail is deferred" }[suspicion.action]);
  if (becomes) return [element("p", `Suspected: ${becomes}`, { class: "big over" })];
  return [element("p", close ? "Not blocked, but near a limit" : "Not blocked", { class: "big" })];
}

function habits(suspicion, isOpen, key) {
  const about = isOpen ? element("p", capital(visible(suspicion.evidence || "its mail is unlike its habits", 400)) + ".")
    : element("p", `Its mail is as usual: the score is ${decimals(1)(suspicion.score)}, and an alarm is raised at ${decimals(1)(suspicion.threshold)}.`);
  if (!isOpen) return [about];
  return [about, element("p", suspected(suspicion), { class: "quiet" }), element("div", alarmButtons(key), { class: "buttons" })];
}

// Each rate as a bar against its limit.
function limits(records, totals) {
  if (!records.length && !totals.length) return [element("p", "No rate of it is known.", { class: "quiet" })];
  const row = (isTotal) => (one) => {
    const { state } = one, { policy, words } = counted(state);
    const counts = amount(state, state.rate);
    const title = `${capital(words[2])} ${within(state)}${isTotal ? `, all of ${mailbox(one.pasted)} together` : ""}`;
    const left = state.over ? free(state) : one.remaining === null ? "" : `${amount(state, Math.floor(one.remaining))} more ${one.remaining === 1 ? "passes" : "pass"} now`;
    return element("li", [
      element("h3", [title, element("span", [policy ? `policy ${visible(policy, 60)}` : state.mode, one.rule].filter(Boolean).join(", "), { class: "what" })]),
      drawShare(state.share ?? 0, state.over),
      element("p", [element("b", `${counts} of ${amount(state, state.limit)}`, { class: state.over ? "over" : "" }), " ", element("span", left, { class: "quiet" })].flat()),
    ]);
  };
  return [element("ul", [...records.map(row(false)), ...totals.map(row(true))], { class: "rates" })];
}

// What each login, local account, domain or customer of the key has sent: by day, the last day by hour,
// and today by its accounts.
function showSent(parent, { counted, sent, problem }) {
  if (problem) return fill(parent, problem, [element("h2", "What was sent"), problemText(problem)]);
  if (!counted && !sent.length) return fill(parent, "", []);
  const known = JSON.stringify(sent);
  if (parent.known === known) return undefined;
  parent.known = known;
  parent.replaceChildren(element("h2", "What was sent"), ...(sent.length ? sent.flatMap(sentParts) : [element("p", "Nothing in the last 35 days.", { class: "quiet" })]));
  for (const figure of parent.querySelectorAll("figure")) plot(figure, (width) => drawColumns(width, figure.columns, figure.about));
  return undefined;
}
function sentParts({ key, zone: of, days, hours, members }) {
  const part = (text, columns) => {
    const all = columns.reduce((sum, one) => sum + one.sent, 0), refused = columns.reduce((sum, one) => sum + one.refused, 0);
    const figure = element("figure", element("figcaption", `${text}: ${many(all, "recipient", "recipients")}${refused ? `, and ${whole(refused)} refused` : ""}.`));
    return Object.assign(figure, { columns, about: `${mailbox(key)}: ${text}` });
  };
  const count = ({ recipients, refused }) => `${many(recipients, "recipient", "recipients")}, ${whole(refused)} refused`;
  const byDay = days.map((day) => ({ label: day.date.slice(5), sent: day.recipients, refused: day.refused,
    text: `${day.date}: ${many(day.messages, "message", "messages")} to ${count(day)}, ${whole(day.failed)} failed` }));
  const byHour = hours.map((hour) => ({ label: clock(wall(hour.at)).slice(11, 16), sent: hour.recipients, refused: hour.refused, text: `${when(hour.at)}: ${count(hour)}` }));
  const rows = members.slice(0, PAGE).map((one) => [link(one.key), whole(one.recipients), share(one.recipients, members.reduce((sum, { recipients }) => sum + recipients, 0)), whole(one.messages), whole(one.refused), whole(one.failed)]);
  return [part(`The last 35 days (${of})`, byDay), part("The last 24 hours", byHour),
    ...(members.length ? [plain(["Account", "#Recipients", "#Share", "#Messages", "#Refused", "#Failed"], rows, `Who has sent most today${members.length > PAGE ? `: the first ${PAGE} of ${whole(members.length)}` : ""}.`)] : [])];
}

const EVENTS = { crossing: "over a limit", refusal: "refused", alarm: "alarm" };
function crossingTable(log) {
  const some = (text) => (text ? name(text) : "");
  return plain(["When", "What", "Why", "Client", "Sender", "Recipient"], log.crossings.map((one) => [
    at(one.at), EVENTS[one.event] + (one.event === "crossing" && one.refused === false ? ", not refused" : ""),
    one.event === "alarm" ? element("span", visible(one.text.join("; "), 400), { class: "text" })
      : [`${rate(one.rate, one.limit)} of ${exactly(one.limit)}`, element("div", visible(one.by, 100), { class: "text quiet" })],
    some(one.client), some(one.sender), some(one.recipient),
  ]), `Crossings, refusals and alarms that are logged${log.oldest ? `, since ${when(log.oldest)}` : ""}; the latest first${log.next ? `, ${PAGE} of them` : ""}.`);
}
function changeTable(done) {
  return plain(["When", "Who", "What"], done.changes.map((one) => [
    at(one.at), person(one.who), element("span", `${visible(one.what, 40)}: ${visible(one.text, 300)}`, { class: "text" }),
  ]), `Changes by hand, the latest first${done.next ? `, ${PAGE} of them` : ""}.`);
}
function overrideTable(overrides) {
  // Those of globs are for an administrator.
  const end = (one) => (mayHelp() && !one.glob && !one.exact ? named(one.override === "deny" ? "End the denial" : "End the permission", one.key, (control) => act("end", { key: one.key }, control)) : null);
  return plain(["State", "Until", "Since", "By", "Why", ""], overrides.map((one) => [
    `${one.override === "deny" ? "denied" : "allowed"}${one.reply === "reject" ? " (550)" : ""}${one.glob ? ` by ${visible(one.key, 80)}` : ""}`,
    one.until ? at(one.until) : "forever", at(one.since), person(one.who), element("span", visible(one.reason, 200), { class: "text" }), end(one),
  ]), "What decides before any limit.");
}
