// Tables of many rows.
const PAGE = 50;
const FEW = 10;
const PRINTED = 500;

// A table with sortable, searchable rows of which one page is in the document.
// columns: [{title, value(i), number}] with node(i), which is of any length, or cell(i) or
// text(i), which are short; rows are numbers 0..count-1.
function grid(columns, count, options) {
  let order = [];
  let sorted = options.sorted, down = true, page = 0, wanted = "", isOpen = false;
  const head = element("tr");
  const body = element("tbody");
  const status = element("p", "", { role: "status", class: "quiet" });
  const buttons = columns.map((column, number) => {
    const button = element("button", column.title, { type: "button" });
    button.addEventListener("click", () => {
      down = sorted === number ? !down : !!column.number;
      sorted = number;
      arrange();
    });
    head.append(element("th", button, { scope: "col", class: column.number ? "n" : "" }));
    return button;
  });
  // At the end they stay where they are, so that the focus is not lost.
  function step(title, by) {
    const button = element("button", title, { type: "button" });
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-disabled") === "true") return;
      page += by;
      show();
    });
    return button;
  }
  const back = step("Previous", -1), next = step("Next", 1);
  const more = element("button", count <= PAGE ? "Show all" : "Show more", { type: "button" });
  more.addEventListener("click", () => {
    const had = document.activeElement === more;
    isOpen = true;
    show();
    if (had) (next.hidden ? buttons[sorted] : next).focus();
  });
  function arrange() {
    const key = columns[sorted].value;
    order = Array.from({ length: count }, (_, i) => i);
    if (wanted) order = order.filter((i) => options.search(i).toLowerCase().includes(wanted));
    const values = new Map(order.map((i) => [i, key(i)]));
    order.sort((a, b) => {
      const [x, y] = [values.get(a), values.get(b)];
      const less = x < y ? -1 : x > y ? 1 : a - b;
      return down ? -less : less;
    });
    page = 0;
    show();
  }
  function show() {
    const isShort = !isOpen && !wanted && !printing;
    const size = printing ? PRINTED : isShort ? FEW : PAGE;
    const last = Math.max(0, Math.ceil(order.length / size) - 1);
    page = Math.min(Math.max(page, 0), last);
    const from = printing ? 0 : page * size;
    const shown = order.slice(from, from + size);
    body.replaceChildren(...shown.map((i) => element("tr", columns.map((column) => {
      const content = (column.node || column.cell || column.text)(i);
      const over = column.over && column.over(i) ? " over" : "";
      return element("td", content, { class: (column.number ? "n" : column.node ? "name" : "") + over, role: "cell", "data-title": column.title });
    }), { role: "row" })));
    for (const [number, cell] of [...head.children].entries()) {
      if (number === sorted) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
      buttons[number].textContent = columns[number].title + (number === sorted ? (down ? "\u00a0▼" : "\u00a0▲") : "");
    }
    const found = wanted ? ` with “${visible(wanted, 60)}”, of ${whole(count)} in all` : "";
    if (!order.length) status.textContent = `Nothing found${found}`;
    else if (isShort && order.length > size) status.textContent = `The first ${whole(size)} of ${whole(order.length)}`;
    else if (order.length <= size) status.textContent = (wanted ? `${whole(order.length)} found` : `All ${whole(count)}`) + found;
    else status.textContent = `${whole(from + 1)} to ${whole(from + shown.length)} of ${whole(order.length)}${found}`;
    back.setAttribute("aria-disabled", page === 0);
    next.setAttribute("aria-disabled", page >= last);
    for (const button of [back, next]) button.hidden = last === 0 || isShort;
    // Whoever has pressed it by a key finds the next rows behind it.
    more.hidden = !isShort || last === 0;
  }
  const controls = element("div", [], { class: "controls" });
  if (options.search) {
    const input = element("input", [], { type: "search", autocomplete: "off", spellcheck: "false" });
    input.addEventListener("input", () => { wanted = input.value.trim().toLowerCase(); arrange(); });
    controls.append(element("label", [options.label, input]));
  }
  controls.append(back, next, more, status);
  controls.hidden = count <= FEW;
  const table = element("table", [element("thead", head), element("tbody")], { class: "rows sorts", role: "table" });
  table.lastChild.replaceWith(body);
  arrange();
  onPrint.push(show);
  if (options.changed) options.changed.push(show);
  return element("div", [controls, framed(table, options.caption)]);
}
