// Who is blocked, close to a limit, suspected, denied or exempt: lists of cards.
const PAGE = 50;
const READING = "The database is being read…";

// The rows of a page, each key once with all its limits.
function grouped(rows) {
  const all = new Map();
  for (const row of rows) {
    const one = all.get(row.pasted);
    if (one) one.rows.push(row);
    else all.set(row.pasted, { key: row.pasted, rows: [row] });
  }
  return [...all.values()];
}

function meter() {
  const box = element("div", [], { class: "meter" });
  return [box, (one) => {
    const part = one.share ?? 0, text = one.share === null ? "" : percent(one.share);
    fill(box, `${text}${one.over}`, [drawShare(part, one.over), element("span", text, { class: one.over ? "over" : "" })]);
  }];
}

// Of a row that is gone, nothing can be pressed but what has the focus, which would be lost.
function leave(end, buttons) {
  fill(end, "gone", element("p", "No longer in this list."));
  const held = focused();
  for (const one of [...buttons.children]) if (one !== held) one.remove();
}

function heading(key) {
  const { who, what } = split(key);
  return element("h2", [element("a", name(who), { href: "#/key/" + encodeURIComponent(key) }), what ? element("span", what, { class: "what" }) : null]);
}

// A card: who, why, when free, how much is used, and what may be done.
function card(item) {
  const why = element("div", [], { class: "why" }), end = element("div", [], { class: "free" });
  const [bar, showBar] = meter();
  const buttons = element("div", [], { class: "buttons" });
  const node = element("li", [heading(item.key), why, end, bar, buttons], { class: "card" });
  let blocked = null;
  function update(next) {
    const { state } = next.rows[0];
    fill(why, next.rows.map(sentence).join("\n"), next.rows.map((row) => element("p", capital(sentence(row)) + ".")));
    // The one that takes longest.
    const last = next.rows.map((row) => row.state).reduce((a, b) => ((b.free_at ?? "~") > (a.free_at ?? "~") ? b : a));
    fill(end, state.over ? last.decided_by + last.free_at : "", state.over ? element("p", free(last)) : []);
    showBar(state);
    if (blocked !== state.over) buttons.replaceChildren(...blockedButtons(item.key));
    blocked = state.over;
  }
  update(item);
  return { node, update, leave: () => { blocked = null; leave(end, buttons); } };
}

// A card whose parts are texts: why(item) and controls(item) say what is in it.
function simpleCard(item, why, controls) {
  const about = element("div", [], { class: "why" }), end = element("div", [], { class: "free" });
  const buttons = element("div", [], { class: "buttons" });
  const node = element("li", [heading(item.key), about, end, buttons], { class: "card" });
  let here = false;
  function update(next) {
    const [first, ...rest] = why(next);
    fill(about, JSON.stringify(next.rows), [element("p", first), ...rest.map((one) => element("p", one, { class: "quiet" }))]);
    if (!here) {
      fill(end, "", []);
      buttons.replaceChildren(...controls(next));
    }
    here = true;
  }
  update(item);
  return { node, update, leave: () => { here = false; leave(end, buttons); } };
}

// The account's evidence, and the two answers.
function alarmCard(item) {
  return simpleCard(item, ({ rows: [{ suspicion, reason }] }) => [
    capital(visible(suspicion && suspicion.evidence ? suspicion.evidence : reason, 400)) + ".", ...(suspicion ? [suspected(suspicion)] : []),
  ], () => alarmButtons(item.key));
}
function alarmButtons(key) {
  return mayHelp() ? [
    named("It was the owner", key, (control) => act("accept", { key }, control), { class: "first" }),
    named("Stolen", key, () => askStolen(key), { class: "grave" }),
  ] : [];
}
const ACTIONS = { off: "its mail passes", observe: "its mail passes", hold: "its mail is held", defer: "its mail is deferred" };
function suspected({ alarm_at, until: end, action, blocked }) {
  return [alarm_at ? ["Since ", at(alarm_at), "; "] : [], blocked ? "its mail is refused" : ACTIONS[action] || action, ".",
    end ? [" Without an answer this ends ", until(end), "."] : blocked ? [" Only an answer ends that."] : []].flat();
}

// What decides before any limit.
function decidedCard(item) {
  const made = simpleCard(item, ({ rows: [row] }) => {
    const by = row.override;
    return by ? [capital(by.override === "deny" ? denial(by) : permission(by)) + (by.glob ? ` (all of ${visible(by.key, 100)})` : "") + "."] : [capital(visible(row.reason, 300)) + "."];
  }, ({ rows: [{ override: by }] }) => (mayHelp() && by && !by.glob ? [
    by.override === "deny"
      ? named("Unblock", item.key, (control) => act("unblock", { key: item.key }, control))
      : named("End", item.key, (control) => act("end", { key: item.key }, control)),
  ] : []));
  return made;
}

const LISTS = {
  blocked: { title: "Blocked now", none: "Nobody is blocked.", make: card, ends: ["unblock", "allow"], about: "Whose next message would be refused." },
  close: { title: "Near a limit", none: "Nobody is near a limit.", make: card, ends: [], about: "Who has used four fifths of a limit or more, and is not blocked." },
  suspected: { title: "Suspected", none: "No account is suspected.", make: alarmCard, unit: "account", ends: ["accept", "stolen"], about: "Accounts whose mail is unlike what they usually send, as if somebody had the password." },
  denied: { title: "Denied", none: "Nobody is denied.", make: decidedCard, ends: ["unblock"], about: "Who is refused, whatever the rates are." },
  exempt: { title: "Exempt", none: "Nobody is exempt.", make: decidedCard, ends: ["deny", "end"], about: "No limit holds for these: they are allowed for a time, or exempt by a policy." },
};

function listView(main, state) {
  const { title, none, make, ends, about, unit = "sender" } = LISTS[state];
  const count = element("div", READING, { class: "count" });
  const list = element("ul", [], { class: "cards" });
  const isOfRates = make === card;
  const rows = keyedList(list, make);
  const cursors = [null];
  let next = null, number = 0, busy = false, again = false;
  const step = (text, by) => {
    const made = button(text, () => {
      if (made.getAttribute("aria-disabled") === "true") return;
      if (by > 0) cursors[number + 1] = next;
      number += by;
      read();
    });
    return made;
  };
  const back = step("Previous", -1), forth = step("Next", 1);
  const pages = element("div", [back, forth], { class: "pages" });
  main.append(element("h1", title, { tabindex: -1 }), element("p", about, { class: "about" }), count, list, pages);

  function show(status, page) {
    next = page.next;
    const items = grouped(page.keys);
    rows.set(items);
    list.hidden = !rows.count();
    const all = status[state], from = number * PAGE;
    const which = page.next || number ? `${whole(from + 1)} to ${whole(from + page.keys.length)} of ` : "";
    const text = !items.length && !number ? none : which + (isOfRates ? `${whole(all)} of ${many(status.keys, "sender", "senders")}` : many(which ? all : items.length, unit, unit + "s"));
    fill(count, text, text);
    pages.hidden = !page.next && !number;
    back.setAttribute("aria-disabled", number === 0);
    forth.setAttribute("aria-disabled", !page.next);
  }
  async function read() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      do {
        again = false;
        const asked = number;
        const [status, page] = await Promise.all([get("status"), get("keys", { state, limit: PAGE, cursor: cursors[number] })]);
        if (asked === number) show(status, page);
      } while (again);
    } catch (problem) {
      caught(problem, (text) => fill(count, text, problemText(text)));
    } finally {
      busy = false;
    }
  }
  return {
    title,
    // The stream has the first page of those that are blocked.
    state: (news) => (state === "blocked" && number === 0 ? show(news.status, news.keys) : read()),
    refresh: read,
    changed: (verb, key) => { if (ends.includes(verb)) rows.mark(key); },
  };
}
