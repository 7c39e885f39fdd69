// The search: as one types, and Enter opens the best.
const query = document.getElementById("query");
const found = document.getElementById("found");
const openKey = (key) => { location.hash = "#/key/" + encodeURIComponent(key); };
let hits = [], chosen = -1, asking = null, soon = 0, answered = "";

function shut() {
  if (asking) asking.abort();
  found.hidden = true;
  found.replaceChildren();
  hits = [];
  choose(-1);
  query.setAttribute("aria-expanded", "false");
}
function choose(number) {
  chosen = number;
  [...found.querySelectorAll("[role=option]")].forEach((one, n) => one.setAttribute("aria-selected", n === number));
  const one = found.querySelector("[aria-selected=true]");
  if (one) {
    one.scrollIntoView({ block: "nearest" });
    query.setAttribute("aria-activedescendant", one.id);
  } else query.removeAttribute("aria-activedescendant");
}
function openFound(key) {
  clearTimeout(soon);
  query.value = "";
  shut();
  query.blur();
  openKey(key);
}
async function look() {
  const text = query.value.trim();
  if (!text) return shut();
  if (asking) asking.abort();
  const { signal } = asking = new AbortController();
  // With many keys it may take a moment.
  const slow = setTimeout(() => {
    hits = [];
    offer([nothing("Searching…")]);
  }, 400);
  try {
    const reply = await get("search", { q: text }, signal);
    if (query.value.trim() !== text) return;
    answered = text;
    hits = reply.found;
    const shown = hits.map(option);
    if (!hits.length) shown.push(nothing(`No key has “${visible(text, 60)}”. Enter shows what would apply to it.`));
    if (reply.more) shown.push(element("li", "There are more: type more of the name.", { class: "none", role: "presentation" }));
    offer(shown);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    shut();
    caught(problem, (text) => say(text, true));
  } finally {
    clearTimeout(slow);
  }
}
const nothing = (text) => element("li", text, { class: "none", role: "option", "aria-disabled": "true", "aria-selected": "false" });
function offer(options) {
  found.replaceChildren(...options);
  found.hidden = false;
  query.setAttribute("aria-expanded", "true");
  choose(-1);
}
function option(hit, n) {
  const { who, what } = split(hit.shown);
  const state = hit.refused ? ["blocked", "over"] : hit.suspected ? ["suspected", "over"] : hit.share !== null ? [percent(hit.share) + " used", "quiet"] : ["", ""];
  const made = element("li", [element("span", [name(who), what ? element("span", what, { class: "what" }) : null]), element("span", state[0], { class: state[1] })], { role: "option", id: "hit-" + n, "aria-selected": "false" });
  made.addEventListener("pointerdown", (event) => event.preventDefault());
  made.addEventListener("click", () => openFound(hit.pasted));
  return made;
}
query.addEventListener("input", () => {
  clearTimeout(soon);
  soon = setTimeout(look, 120);
});
query.addEventListener("keydown", (event) => {
  if (event.key === "Escape") return shut();
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  if (!hits.length) return;
  choose((chosen + (event.key === "ArrowDown" ? 1 : -1) + hits.length + (chosen < 0 && event.key === "ArrowUp" ? 1 : 0)) % hits.length);
});
query.addEventListener("blur", shut);
document.getElementById("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = query.value.trim();
  if (!text) return;
  if (chosen >= 0) return openFound(hits[chosen].pasted);
  clearTimeout(soon);
  // What is shown may be of fewer letters.
  if (answered !== text || found.hidden) await look();
  openFound(hits.length ? hits[0].pasted : text);
});
