// What policies would have refused, and of which identities.
const policy = data.policy;
const refusedOf = (i) => (policy.of[i] === null ? "not known" : whole(policy.of[i]));

// The limits that refused an identity, and the identities that a limit refused, with how
// many attempts: the most first.
let shares = null;
function sharesOf(kind, number) {
  if (!shares) {
    shares = { identity: new Map(), limit: new Map() };
    const add = (map, key, entry) => (map.has(key) ? map.get(key).push(entry) : map.set(key, [entry]));
    for (const [limit, identity, count] of policy.shares) {
      add(shares.identity, identity, [limit, count]);
      add(shares.limit, limit, [identity, count]);
    }
  }
  return shares[kind].get(number) || [];
}
const sum = (entries) => entries.reduce((all, [, count]) => all + count, 0);

// A key of one field without the field's name: `auth:alice` is `alice`.
function keyText(key) {
  const isOne = !key.replaceAll(",,", "").includes(",");
  return isOne ? key.slice(key.indexOf(":") + 1).replaceAll(",,", ",") : key;
}

function showPolicy() {
  const made = section("refused", "What the policies would have refused",
    `The policies of ${visible(policy.file, 200)}, evaluated on the log's own times. Rates start at zero where the log begins. ` +
    "Each attempt is decided by itself: a login, a recipient, or a message.");
  made.append(element("ul", [
    element("li", [element("b", whole(policy.decided)), "attempts decided"]),
    element("li", [element("b", whole(policy.refused)), "of them refused"]),
    element("li", [element("b", share(policy.refused, policy.decided)), "of the attempts"]),
  ], { class: "facts" }));
  showNamed(made);
  if (!policy.limits.length) {
    made.append(element("p", "No limit would have refused anything."));
    return;
  }
  const of = (field) => (i) => policy.limits[i][field];
  const columns = [
    { title: "Key", value: of("key"), node: pickKey },
    { title: "Refused", number: true, value: of("refused"), text: (i) => whole(policy.limits[i].refused) },
    { title: "First", value: of("first"), cell: (i) => moment(policy.limits[i].first) },
    { title: "Limit", value: (i) => policy.limits[i].unit + policy.limits[i].window, text: (i) => `${policy.limits[i].unit} ${policy.limits[i].window}` },
    { title: "Highest rate", number: true, value: of("peak"), text: (i) => rate(policy.limits[i].peak, policy.limits[i].limit), over: () => true },
    { title: "Times over", number: true, value: of("times"), text: (i) => whole(policy.limits[i].times) },
    { title: "Time over", number: true, value: of("over"), text: (i) => duration(policy.limits[i].over) },
    { title: "Policy", value: of("policy"), node: (i) => name(policy.limits[i].policy) },
    { title: "Rule", value: of("rule"), node: (i) => name(policy.limits[i].rule) },
  ];
  made.append(grid(columns, policy.limits.length, {
    sorted: 1, label: "Search", search: (i) => policy.limits[i].key + " " + policy.limits[i].policy,
    caption: "A row for each limit and each key that is counted: how many attempts it refused, how often the rate went over the limit, and for how long it was over, all times together.",
  }));
}

// The accounts that their habits would have named.
function showNamed(made) {
  const rows = policy.named;
  if (!policy.compared && !rows.length) return;
  made.append(element("h3", "Named by their habits"));
  if (!rows.length) {
    made.append(element("p", `No account, of the senders of ${whole(policy.compared)} messages.`));
    return;
  }
  made.append(grid([
    { title: "When", value: (i) => rows[i].at, cell: (i) => moment(rows[i].at) },
    { title: "Account", value: (i) => rows[i].key, node: (i) => name(rows[i].key) },
    { title: "Recipients", number: true, value: (i) => rows[i].strangers, text: (i) => whole(rows[i].strangers) },
    { title: "Alarms", number: true, value: (i) => rows[i].alarms, text: (i) => whole(rows[i].alarms) },
    { title: "Evidence", value: (i) => rows[i].evidence, node: (i) => visible(rows[i].evidence) },
  ], rows.length, {
    sorted: 0, label: "Search", search: (i) => rows[i].key,
    caption: "When the account was named first, after how many recipients that it had never written to, and how many alarms there were in all.",
  }));
}
