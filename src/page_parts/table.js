// Tables.
let captions = 0;

// A table with its caption above it. Where it is wider than the window, it can be scrolled,
// by keys as well, and a hint says so.
function framed(table, text) {
  const id = `caption-${captions += 1}`;
  const caption = element("p", text, { id, class: "caption" });
  const hint = element("p", "There are more columns: scroll to the side.", { class: "hint" });
  const scroll = element("div", table, { class: "scroll" });
  table.setAttribute("aria-labelledby", id);
  hint.hidden = true;
  function look() {
    const hidden = scroll.scrollWidth - scroll.clientWidth;
    hint.hidden = hidden <= 1;
    scroll.classList.toggle("more", scroll.scrollLeft < hidden - 1);
    if (hidden > 1) scroll.setAttribute("tabindex", "0"); else scroll.removeAttribute("tabindex");
  }
  scroll.setAttribute("role", "group");
  scroll.setAttribute("aria-labelledby", id);
  scroll.addEventListener("scroll", look, { passive: true });
  const watcher = new ResizeObserver(look);
  watcher.observe(scroll);
  watcher.observe(table);
  return element("div", [caption, hint, scroll]);
}

// A table of few rows: titles and cells as text or nodes; a title that begins with # is of
// numbers.
function plain(titles, rows, caption) {
  const attributes = titles.map((title) => (title[0] === "#" ? { class: "n" } : {}));
  const head = element("tr", titles.map((title, k) => (title ? element("th", title.replace("#", ""), { scope: "col", ...attributes[k] }) : element("td"))));
  // In a narrow window each row is a card, whose lines have the titles.
  const body = rows.map((cells) => element("tr", cells.map((cell, k) => element("td", cell, { ...attributes[k], role: "cell", "data-title": titles[k].replace("#", "") })), { role: "row" }));
  return framed(element("table", [element("thead", head), element("tbody", body)], { class: "rows", role: "table" }), caption);
}
