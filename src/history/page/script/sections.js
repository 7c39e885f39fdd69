// The data, and the sections that show it.
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const sections = document.getElementById("sections");

function section(id, title, about) {
  const made = element("section", [element("h2", title, { id: id + "-title" })], { id, "aria-labelledby": id + "-title" });
  if (about) made.append(element("p", about, { class: "about" }));
  main.append(made);
  sections.append(element("li", element("a", title, { href: "#" + id })));
  return made;
}
