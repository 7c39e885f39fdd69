// Who is blocked, or close to a limit, or suspected: lists of cards.
const PAGE = 50;

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

function meter(state) {
  const box = element("div", [], { class: "meter" });
  return [box, (one) => {
    const part = one.share ?? 0, text = one.share === null ? "" : percent(one.share);
    fill(box, `${text}${one.over}`, [drawShare(part, one.over), element("span", text, { class: one.over ? "over" : "" })]);
  }];
}

// A card: who, why, when free, how much is used, and what may be done.
function card(item) {
  const { who, what } = split(item.key);
  const why = element("div", [], { class: "why" }), end = element("div", [], { class: "free" });
  const [bar, showBar] = meter({});
  const buttons = element("div", [], { class: "buttons" });
  const title = element("h2", [element("a", name(who), { href: "#/key/" + encodeURIComponent(item.key) }), what ? element("span", what, { class: "what" }) : null]);
  const node = element("li", [title, why, end, bar, buttons], { class: "card" });
  let blocked = null;
  function update(next) {
    const first = next.rows[0], { state } = first;
    node.classList.toggle("is-blocked", state.over);
    fill(why, next.rows.map(sentence).join("\n"), next.rows.map((row) => element("p", capital(sentence(row)) + ".")));
    // The one that takes longest.
    const last = next.rows.map((row) => row.state).reduce((a, b) => ((b.free_at ?? "~") > (a.free_at ?? "~") ? b : a));
    fill(end, state.over ? last.decided_by + last.free_at : "", state.over ? element("p", free(last)) : []);
    showBar(state);
    if (blocked !== state.over) buttons.replaceChildren(...blockedButtons(item.key));
    blocked = state.over;
  }
  update(item);
  const leave = () => {
    if (blocked === null) return;
    blocked = null;
    fill(end, "gone", element("p", "No longer in this list."));
    buttons.replaceChildren(...(buttons.contains(document.activeElement) ? [document.activeElement] : []));
  };
  return { node, update, leave };
}

// The account's evidence, and the two answers.
function alarmCard(item) {
  const { who, what } = split(item.key);
  const why = element("div", [], { class: "why" }), end = element("div", [], { class: "free" });
  const buttons = element("div", mayHelp() ? [
    named("It was the owner", item.key, (control) => act("accept", { key: item.key }, control), { class: "first" }),
    named("Stolen", item.key, () => askStolen(item.key), { class: "grave" }),
  ] : [], { class: "buttons" });
  const title = element("h2", [element("a", name(who), { href: "#/key/" + encodeURIComponent(item.key) }), what ? element("span", what, { class: "what" }) : null]);
  const node = element("li", [title, why, end, buttons], { class: "card" });
  function update({ rows: [{ suspicion, reason }] }) {
    const text = suspicion && suspicion.evidence ? suspicion.evidence : reason;
    fill(why, text, element("p", capital(visible(text, 400)) + "."));
    fill(end, JSON.stringify(suspicion), suspicion ? element("p", suspected(suspicion)) : []);
  }
  update(item);
  const leave = () => {
    fill(end, "gone", element("p", "No longer in this list."));
    buttons.replaceChildren(...(buttons.contains(document.activeElement) ? [document.activeElement] : []));
  };
  return { node, update, leave };
}
const ACTIONS = { off: "its mail passes", observe: "its mail passes", hold: "its mail is held", defer: "its mail is deferred" };
function suspected({ alarm_at, until: end, action }) {
  return [alarm_at ? ["Since ", at(alarm_at), "; "] : [], ACTIONS[action] || action, end ? [" until ", at(end)] : [], "."].flat();
}

const LISTS = {
  blocked: { title: "Blocked now", none: "Nobody is blocked.", make: card, of: (status) => status.blocked },
  close: { title: "Close to a limit", none: "Nobody is close to a limit.", make: card, of: (status) => status.close },
  suspected: { title: "Suspected", none: "No account is suspected.", make: alarmCard, of: (status) => status.suspected },
};
const ABOUT = {
  blocked: "Whose next message would be refused.",
  close: "Who has used four fifths of a limit or more, and is not blocked.",
  suspected: "Accounts whose mail is unlike what they usually send, as if somebody had the password.",
};

function listView(main, state) {
  const { title, none, make, of } = LISTS[state];
  const count = element("div", "", { class: "count" }), about = element("p", ABOUT[state], { class: "about" });
  const list = element("ul", [], { class: "cards" });
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
  main.append(element("h1", title, { tabindex: -1 }), about, count, list, pages);

  function show(status, page) {
    next = page.next;
    const items = grouped(page.keys);
    rows.set(items);
    list.hidden = !rows.count();
    const all = of(status), from = number * PAGE;
    const which = page.next || number ? `${whole(from + 1)} to ${whole(from + page.keys.length)} of ` : "";
    const text = all || items.length ? `${which}${whole(all)} of ${many(status.keys, "key", "keys")}` : none;
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
  };
}
