// The messages in the mail server's queue that policies hold, and those that wait to be sent later.
function heldTable({ held, messages }, isOfAll) {
  const titles = [...(isOfAll ? ["Who"] : []), "Since", "Leaves", "Sender", "#Recipients", "#Size", "Why", ...(isOfAll && mayHelp() ? [""] : [])];
  const rows = held.map((one) => [
    ...(isOfAll ? [link(one.key)] : []),
    at(new Date(one.at * 1000).toISOString()), leaves(one), name(one.sender), whole(one.recipients), size(one.bytes),
    element("span", [visible(one.why, 300), element("div", `policy ${visible(one.policy, 60)}, message ${visible(one.id, 40)}`, { class: "quiet" })], { class: "text" }),
    ...(isOfAll && mayHelp() ? [named("Release", one.key, (control) => act("release", { key: one.key, id: one.id }, control))] : []),
  ]);
  const some = held.length < messages ? `; the first ${whole(held.length)} of them` : "";
  return plain(titles, rows, `${many(messages, "message", "messages")} that the mail server keeps${some}.`);
}
function leaves({ state, until }) {
  if (state === "held") return "if released";
  return until === null ? "later" : element("span", ["about ", at(new Date(until * 1000).toISOString())]);
}
function releaseButtons(key, { messages }) {
  return element("div", mayHelp() ? [named(`Release ${many(messages, "message", "messages")}`, key, (control) => act("release", { key }, control))] : [], { class: "buttons" });
}

function heldView(main) {
  const title = "Held and waiting mail";
  const body = element("div", READING);
  main.append(element("h1", title, { tabindex: -1 }), element("p", "Messages in the mail server's queue that a policy holds until somebody releases them, or that wait for room within a limit and leave by themselves. Answer an alarm, and what was held for it is released.", { class: "about" }), body);
  let isRead = false;
  async function refresh() {
    isRead = true;
    try {
      const held = await get("held");
      fill(body, JSON.stringify(held), [
        held.messages ? heldTable(held, true) : held.messages === 0 ? element("p", "No message is held or waits.", { class: "count" }) : null,
        ...held.unread.map((why) => problemText(why)),
      ]);
    } catch (problem) {
      caught(problem, (text) => fill(body, text, problemText(text)));
    }
  }
  // The queue is not read for each state.
  return { title, refresh, state: () => isRead || refresh(), happened: refresh };
}
