// Which view is shown, and who has signed in.
const main = document.getElementById("main");
let view = null;
const VIEWS = [
  ["", "Blocked", "blocked"], ["close", "Near", "close"], ["suspected", "Suspected", "suspected"],
  ["held", "Held", null], ["denied", "Denied", "denied"], ["exempt", "Exempt", "exempt"], ["policies", "Policies", null],
];

function refresh() {
  if (view) view.refresh();
}
function route(isFirst) {
  if (!me) return;
  const [, path, rest] = /^#\/([a-z]*)\/?(.*)$/s.exec(location.hash) || ["", "", ""];
  if (dialog.open) dialog.close();
  main.replaceChildren();
  let key = "";
  try { key = decodeURIComponent(rest); } catch { key = rest; }
  const known = VIEWS.find(([one]) => one === path) || VIEWS[0];
  const isKey = path === "key" && key !== "";
  view = isKey ? identityView(main, key) : known[2] ? listView(main, known[2]) : known[0] === "held" ? heldView(main) : policiesView(main);
  for (const one of document.querySelectorAll("#sections a")) {
    if (!isKey && one.getAttribute("href") === "#/" + known[0]) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  document.title = `${view.title} · exirate desk`;
  if (latest) onState(latest); else view.refresh();
  window.scrollTo(0, 0);
  if (isFirst !== true) main.querySelector("h1").focus({ preventScroll: true });
}

// Whether somebody has signed in since this page was loaded.
let isUsed = false;
function begin() {
  isUsed = true;
  const sections = document.getElementById("sections");
  sections.hidden = false;
  sections.querySelector("ul").replaceChildren(...VIEWS.map(([path, title, count]) => element("li", element("a", [title, count ? element("span", [], { class: "number", "data-count": count }) : null], { href: "#/" + path }))));
  document.getElementById("search").hidden = false;
  const who = document.getElementById("who");
  const isToken = me.name.startsWith("token:");
  who.replaceChildren(element("span", [name(me.name.replace(/^(token|person):/, "")), me.scope ? `, for ${visible(me.scope, 200)}` : "", mayHelp() ? "" : ", who may look only"], { title: me.name }), ...(isToken ? [button("Sign out", signOut)] : []));
  document.getElementById("foot").replaceChildren(
    element("p", "", { id: "unread", class: "problem" }),
    element("p", `exirate ${me.release}. Times are of this browser (${zone()}).${me.until ? ` Your token ends at ${when(me.until)}.` : ""}`),
  );
  listen();
}

async function signOut() {
  try {
    await ask("DELETE", "/api/v1/session");
  } catch (problem) {
    return caught(problem, (text) => say(text, true));
  }
  history.replaceState(null, "", "/");
  signIn("");
}
function signIn(why) {
  me = null;
  view = null;
  latest = null;
  hush();
  lost("");
  if (dialog.open) dialog.close();
  dialog.replaceChildren();
  query.value = "";
  shut();
  for (const id of ["search", "sections"]) document.getElementById(id).hidden = true;
  for (const id of ["who", "foot", "said", "news"]) document.getElementById(id).replaceChildren();
  document.title = "Sign in · exirate desk";
  const token = element("input", [], { type: "password", id: "token", autocomplete: "current-password", spellcheck: "false", required: "", "aria-describedby": "sign-in-problem" });
  const fault = element("p", why, { class: "problem", role: "alert", id: "sign-in-problem" });
  const go = element("button", "Sign in", { type: "submit", class: "first" });
  const form = element("form", [
    // A name for what a browser may keep.
    element("input", [], { type: "text", autocomplete: "username", value: "exirate desk", hidden: "" }),
    element("label", ["Token", token], { class: "line" }), fault, go,
  ], { id: "sign-in" });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (go.getAttribute("aria-disabled") === "true") return;
    go.setAttribute("aria-disabled", "true");
    fault.textContent = "";
    try {
      const known = await ask("POST", "/api/v1/session", { token: token.value.trim() });
      // Whoever was here before may have seen more: nothing of that stays.
      if (isUsed) return location.reload();
      me = known;
      begin();
      route();
    } catch (problem) {
      caught(problem, (text) => { fault.textContent = text; });
      token.select();
    } finally {
      go.removeAttribute("aria-disabled");
    }
  });
  main.replaceChildren(element("h1", "Sign in", { tabindex: -1 }), element("p", "With a token, which the administrator of the mail server makes with “exirate web token add”. This browser keeps it until you sign out.", { class: "about" }), form);
  token.focus();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
(async () => {
  // A reply to somebody unknown takes a second.
  main.replaceChildren(element("h1", "exirate desk", { tabindex: -1 }), element("p", "Asking the service who you are…", { class: "about", role: "status" }));
  try {
    me = await get("me");
    begin();
    route(true);
  } catch (problem) {
    // Of those who are unknown, others may keep the service busy: a token is nevertheless taken.
    if ([401, 429].includes(problem.status)) return signIn("");
    main.replaceChildren(element("h1", "The desk cannot be shown", { tabindex: -1 }), problemText(problem.message), button("Try again", () => location.reload()));
  }
})();
