// Who is denied or exempt, and the policies in use.
function reader(main, title, about, read) {
  const body = element("div", []);
  main.append(element("h1", title, { tabindex: -1 }), element("p", about, { class: "about" }), body);
  async function refresh() {
    try {
      await read(body);
    } catch (problem) {
      caught(problem, (text) => fill(body, text, problemText(text)));
    }
  }
  return { title, refresh, state: refresh };
}

function overridesView(main) {
  return reader(main, "Denied and exempt", "Who is refused or let through, whatever the rates are.", async (body) => {
    const [denied, exempt] = await Promise.all(["denied", "exempt"].map((state) => get("keys", { state, limit: 200 })));
    const mark = JSON.stringify([denied.keys, exempt.keys]) + mayHelp();
    if (body.contains(document.activeElement)) return;
    fill(body, mark, [["Denied", denied, true], ["Exempt", exempt, false]].flatMap(([title, page, isDenied]) => [
      element("h2", title), page.keys.length ? decided(page, isDenied) : element("p", "Nobody.", { class: "quiet" }),
    ]));
  });
}
function decided(page, isDenied) {
  const titles = ["Key", "Until", "By", "Why"].concat(isDenied && mayHelp() ? ["Change"] : []);
  return plain(titles, page.keys.map((row) => {
    const by = row.override;
    const isGlob = by && by.glob;
    const cells = [isGlob ? name(by.key) : link(row.pasted), by ? (by.until ? at(by.until) : "for ever") : "", by ? name(by.who) : "the policy",
      element("span", visible(by ? by.reason : row.reason, 200), { class: "text" })];
    if (titles.length > cells.length) cells.push(isGlob ? "" : named("Unblock", row.pasted, (control) => act("unblock", { key: row.pasted }, control)));
    return cells;
  }), isDenied ? "Denied until somebody unblocks them, or until the time that is given." : `For these no limit holds${page.next ? ": the first 200" : ""}.`);
}

function policiesView(main) {
  return reader(main, "Policies in use", "What limits hold. They are changed on the server, with exirate policy apply.", async (body) => {
    const { policies } = await get("policies");
    fill(body, JSON.stringify(policies), policies.length ? policies.map(policySection) : element("p", "No policy is in use.", { class: "quiet" }));
  });
}
function policySection(policy) {
  const of = [[policy.customers, "customer"], [policy.domains, "domain"], [policy.users, "user"]].filter(([n]) => n).map(([n, one]) => many(n, one, one + "s"));
  const facts = [policy.when ? `For mail that is ${visible(policy.when, 200)}` : "For all mail", `counted by ${policy.key.join(", ")}`, `what is over a limit: ${policy.action}`];
  return element("section", [
    element("h2", name(policy.name)), element("p", facts.join("; ") + "."),
    plain(["Table", "Limits", "Habits"], policy.tables.map((table) => [name(table.table), table.limits.length ? table.limits.map((one) => element("div",
      `${one.text} ${one.unit.replaceAll("_", " ")}${one.total ? ", all together" : ""}`)) : "none of its own", table.habits || ""]), "The limits of its tables."),
    of.length ? element("p", `Limits of their own have ${of.join(", ")}: their pages show these.`, { class: "quiet" }) : null,
    policy.exempt.length ? plain(["Exempt", "Mail to", "Until", "Why"], policy.exempt.map((one) => [
      element("span", one.matches.map((text) => visible(text, 80)).join(", "), { class: "text" }), one.recipients.length ? visible(one.recipients.join(", "), 200) : "everybody",
      one.until ? at(one.until) : "for ever", element("span", visible(one.reason || "", 200), { class: "text" }),
    ]), "Who is exempt of it.") : null,
  ]);
}
