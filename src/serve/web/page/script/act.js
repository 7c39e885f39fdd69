// Changes, and what is asked before them.
const dialog = document.getElementById("ask");
// What had the focus before, and has it again afterwards.
let opener = null;
// What must not be removed or moved: where somebody is by keys, or will be again.
const focused = () => (dialog.open ? opener : document.querySelector(":focus-visible"));
const HOUR = 3600;

function say(text, isProblem) {
  const made = element("p", text, { class: isProblem ? "problem" : "" });
  made.append(button("Dismiss", () => made.remove()));
  document.getElementById("said").replaceChildren(made);
}

// Makes a change, says what was done, and has all that is shown looked at again.
async function act(verb, body, control, isSaid = true) {
  if (control) {
    if (control.getAttribute("aria-disabled") === "true") return null;
    control.setAttribute("aria-disabled", "true");
  }
  try {
    const changed = await change(verb, body);
    if (isSaid) say(done(verb, body.key, changed));
    if (view && view.changed) view.changed(verb, body.key);
    refresh();
    return changed;
  } catch (problem) {
    caught(problem, (text) => say(`${mailbox(body.key)} is not changed: ${text}`, true));
    return null;
  } finally {
    if (control) control.removeAttribute("aria-disabled");
  }
}
// What was done; a time is that of the browser.
function done(verb, key, { said, until: end }) {
  // Which records were reset is in the log.
  const [first, ...rest] = said.filter((text) => !/^(reset|removed:) /.test(text)).map((text) => visible(text, 300));
  const timed = { allow: "allowed", deny: "denied" }[verb];
  if (verb === "unblock" && !/can send again/.test(first || "")) return `${mailbox(key)}: its own counts are reset; but ${[first, ...rest].join("; ")}.`;
  const begin = timed && end ? `${mailbox(key)} is ${timed} until ${when(end)}` : first;
  return [begin, ...rest].join("; ") + ".";
}

// A button whose name has the mailbox, for those who do not see where it is.
function named(text, key, run, attributes) {
  const made = button([text, element("span", " " + mailbox(key), { class: "away" })], () => run(made));
  for (const [one, value] of Object.entries(attributes || {})) made.setAttribute(one, value);
  return made;
}
function blockedButtons(key) {
  return mayHelp() ? [
    named("Unblock", key, (control) => act("unblock", { key }, control), { class: "first" }),
    named("Allow for…", key, () => askForTime("allow", key)),
  ] : [];
}

function open(title, content, buttons) {
  const bar = element("div", buttons, { class: "buttons" });
  dialog.replaceChildren(element("h2", title, { id: "ask-title", tabindex: -1 }), ...content.filter(Boolean), bar);
  if (!dialog.open) {
    opener = document.activeElement;
    dialog.showModal();
  }
}
const close = (text) => button(text, () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

// For how long, within the bound: hours, a day, and until midnight.
function times() {
  const midnight = new Date();
  midnight.setHours(24, 0, 0, 0);
  const left = Math.floor((midnight - Date.now()) / 1000);
  const all = [[HOUR, "1 hour"], [2 * HOUR, "2 hours"], [8 * HOUR, "8 hours"], [24 * HOUR, "1 day"], [left, "until midnight"]];
  const may = all.filter(([seconds]) => seconds > 0 && seconds <= me.longest);
  return may.length ? may : [[me.longest, span(me.longest)]];
}
function askForTime(verb, key) {
  const offered = times();
  const radios = offered.map(([seconds, text], n) => {
    const radio = element("input", [], { type: "radio", name: "time", value: seconds, id: "time-" + n });
    radio.checked = n === Math.min(1, offered.length - 1);
    const end = text.startsWith("until") ? null : element("span", `until ${when(new Date(Date.now() + seconds * 1000).toISOString())}`, { class: "quiet" });
    return element("label", [radio, element("span", [text, end && [" ", end]].flat())], { class: "choice" });
  });
  const reason = element("input", [], { type: "text", id: "reason", maxlength: 100, autocomplete: "off" });
  const replies = verb === "deny" ? [["defer", "Try again later (451)"], ["reject", "Do not try again (550)"]].map(([word, text], n) => {
    const radio = element("input", [], { type: "radio", name: "reply", value: word, id: "reply-" + word });
    radio.checked = n === 0;
    return element("label", [radio, element("span", text)], { class: "choice" });
  }) : [];
  const form = element("form", [
    element("fieldset", [element("legend", "For how long?"), ...radios]),
    replies.length ? element("fieldset", [element("legend", "What is its mail program told?"), ...replies]) : null,
    element("label", ["Why? Others will see this.", reason], { class: "line" }),
  ].filter(Boolean));
  const go = element("button", verb === "allow" ? "Allow" : "Deny", { type: "submit", class: verb === "allow" ? "first" : "grave", form: "ask-form" });
  form.id = "ask-form";
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const seconds = Number(form.elements.time.value);
    const reply = replies.length ? { reply: form.elements.reply.value } : {};
    const changed = await act(verb, { key, seconds, reason: reason.value.trim(), ...reply }, go);
    if (changed) dialog.close();
  });
  const about = verb === "allow" ? "No limit applies to it meanwhile. What it sends is still counted." : "Everything that it sends is refused meanwhile.";
  open([verb === "allow" ? "Allow " : "Deny ", name(split(key).who)], [element("p", about), form], [go, close("Cancel")]);
  form.elements.time.value = offered[Math.min(1, offered.length - 1)][0];
  form.querySelector("input:checked").focus();
}

async function askStolen(key) {
  const all = (await orProblem(get("held", { key }))).held || [];
  const messages = all.filter((one) => one.state === "held").length;
  const choice = (value, text) => {
    const radio = element("input", [], { type: "radio", name: "held", value });
    radio.checked = value === "keep";
    return element("label", [radio, text], { class: "choice" });
  };
  const ofHeld = messages ? element("form", element("fieldset", [
    element("legend", `${many(messages, "message", "messages")} of it ${messages === 1 ? "is" : "are"} held, and nobody has received ${messages === 1 ? "it" : "them"}:`),
    choice("delete", "Delete what was held for the alarm"), choice("keep", "Keep it held, to look at it"),
  ])) : null;
  const go = named("Yes, it is stolen: deny", key, async (control) => {
    const held = ofHeld ? ofHeld.elements.held.value : "keep";
    const changed = await act("stolen", { key, held }, control, false);
    if (changed) showStolen(key, changed);
  }, { class: "grave" });
  const cancel = close("Cancel");
  open(["Is ", name(split(key).who), " stolen?"], [
    element("p", "If you say so, everything that it sends is refused from now on, until somebody unblocks it."),
    element("p", "Change its password before you unblock it. Whoever has the old one would go on sending."),
    ofHeld,
  ], [go, cancel]);
  cancel.focus();
}
// What the thief has sent, so that people can be warned.
function showStolen(key, { said, sent }) {
  const people = sent ? sent.people : [];
  const about = sent ? `Since ${when(sent.since)} it has sent ${many(sent.messages, "message", "messages")} to ${many(sent.recipients, "recipient", "recipients")}${sent.clients.length ? `, from ${visible(sent.clients.slice(0, 5).join(", "), 300)}` : ""}.`
    : "";
  open([name(split(key).who), " is denied"], [
    ...said.map((text) => element("p", visible(text, 400) + ".")), about ? element("p", about) : null,
    people.length ? element("label", [`People to warn${people.length < sent.recipients ? `: the first ${whole(people.length)}` : ""}`,
      element("textarea", people.map((one) => visible(one)).join("\n"), { readonly: "", rows: Math.min(12, people.length), spellcheck: "false" })], { class: "line" }) : null,
  ], [close("Close")]);
  // What has been done is read from its begin.
  dialog.querySelector("h2").focus();
}
