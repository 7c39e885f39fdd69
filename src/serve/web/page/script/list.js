// Lists whose rows are kept: a row is the same element while its key is there, so that focus and
// scroll stay. While the pointer is on a list, no row is moved or removed: what is gone is
// marked, and what is new is added at the end.
const STEADY = 500;

// make(item) returns {node, update(item), leave()}.
function keyedList(list, make) {
  const rows = new Map();
  let latest = null, steady = 0;
  const isPointed = () => list.matches(":hover");
  function set(items) {
    latest = items;
    const wanted = new Map(items.map((item) => [item.key, item]));
    for (const [key, row] of rows) {
      row.node.classList.toggle("gone", !wanted.has(key));
      if (!wanted.has(key)) row.leave();
    }
    for (const item of items) {
      const row = rows.get(item.key);
      if (row) row.update(item);
      else rows.set(item.key, make(item));
    }
    arrange();
  }
  function arrange() {
    const held = focused();
    const pinned = held && [...rows.values()].find((row) => row.node.contains(held));
    if (isPointed()) {
      for (const row of rows.values()) if (!row.node.isConnected) list.append(row.node);
      return;
    }
    const before = [...list.children];
    for (const [key, row] of [...rows]) {
      if (!latest.some((item) => item.key === key) && row !== pinned) {
        row.node.remove();
        rows.delete(key);
      }
    }
    // Around the row that has the focus, which would lose it if it were moved.
    const order = latest.map((item) => rows.get(item.key).node);
    if (pinned && !order.includes(pinned.node)) order.splice(before.indexOf(pinned.node), 0, pinned.node);
    const pivot = pinned ? order.indexOf(pinned.node) : -1;
    order.slice(0, Math.max(pivot, 0)).forEach((node) => list.insertBefore(node, pinned.node));
    order.slice(pivot + 1).forEach((node, n) => {
      if (list.children[pivot + 1 + n] !== node) list.insertBefore(node, list.children[pivot + 1 + n] || null);
    });
    if (before.some((node, n) => list.children[n] !== node)) {
      list.dataset.moved = "";
      clearTimeout(steady);
      steady = setTimeout(() => { delete list.dataset.moved; }, STEADY);
    }
  }
  // What was pointed at may be another row by now.
  list.addEventListener("click", (event) => {
    if (event.detail > 0 && "moved" in list.dataset) {
      event.preventDefault();
      event.stopPropagation();
      say("The list has just changed: look again.");
    }
  }, true);
  list.addEventListener("pointerleave", () => { if (latest) arrange(); });
  list.addEventListener("focusout", () => setTimeout(() => { if (latest && list.isConnected) arrange(); }));
  // What was just changed is gone, before the database has been read again.
  function mark(key) {
    const row = rows.get(key);
    if (!row) return;
    row.node.classList.add("gone");
    row.leave();
  }
  return { set, mark, count: () => rows.size };
}

// Puts content into an element if it is other than before: `what` says which it is.
function fill(node, what, content) {
  if (node.dataset.what === what) return;
  node.dataset.what = what;
  node.replaceChildren(...[content].flat().filter((part) => part !== null && part !== undefined));
}
