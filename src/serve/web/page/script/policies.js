// The policies in use.
function policiesView(main) {
  const title = "Policies in use";
  const body = element("div", READING);
  main.append(element("h1", title, { tabindex: -1 }), element("p", "The limits in use. They are changed on the server, with exirate policy apply.", { class: "about" }), body);
  async function refresh() {
    try {
      const { policies } = await get("policies");
      fill(body, JSON.stringify(policies), policies.length ? policies.map(policySection) : element("p", "No policy is in use.", { class: "quiet" }));
    } catch (problem) {
      caught(problem, (text) => fill(body, text, problemText(text)));
    }
  }
  return { title, refresh, state: refresh };
}
function policySection(policy) {
  const isOf = (what) => policy.tables.filter(({ table }) => table.startsWith(what + " ")).length;
  // Of these, the tables are not here.
  const of = ["customer", "domain"].map((one) => [policy[one + "s"] - isOf(one), "more " + one]).concat([[policy.users, "user"]]).filter(([n]) => n > 0);
  const sum = of.reduce((all, [n]) => all + n, 0);
  const facts = [policy.when ? `For mail that is ${visible(policy.when, 200)}` : "For all mail", `counted by ${policy.key.join(", ")}`, policy.action === "enforce" ? "what is over a limit is refused" : "nothing is refused: what is over a limit is only logged"];
  return element("section", [
    element("h2", name(policy.name)), element("p", facts.join("; ") + "."),
    plain(["Table", "Limits", "Habits"], policy.tables.map((table) => [name(table.table), table.limits.length || table.package ? [table.package ? element("div", ["package ", name(table.package)]) : null, ...table.limits.map((one) => element("div",
      `${one.text} ${one.unit.replaceAll("_", " ")}${one.total ? `, all users of ${table.table.startsWith("customer ") ? "it" : "a domain"} together` : ""}`))] : "none of its own", table.habits || ""]), "The limits of its tables."),
    of.length ? element("p", `${capital(of.map(([n, one]) => many(n, one, one + "s")).join(", "))} ${sum === 1 ? "has" : "have"} limits or a package of their own: the page of a mailbox shows them.`, { class: "quiet" }) : null,
    policy.exempt.length ? plain(["Exempt", "Mail to", "Until", "Why"], policy.exempt.map((one) => [
      element("span", one.matches.map((text) => visible(text, 80)).join(", "), { class: "text" }), one.recipients.length ? visible(one.recipients.join(", "), 200) : "everybody",
      one.until ? at(one.until) : "forever", element("span", visible(one.reason || "", 200), { class: "text" }),
    ]), "Who is exempt from it.") : null,
  ]);
}
