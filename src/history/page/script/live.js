// The state of a rate database.
function showLive(live) {
  const made = section("now", "Now", `The rate database at ${live.at}.`);
  const facts = [[live.keys, "keys"], [live.over.length, "blocked"], [live.close.length, "others at 80\u00a0% of the limit or more"]];
  if (live.trace) facts.push([live.trace.messages, "messages in the trace store"], [Math.round(live.trace.bytes / 1048576), "MiB of it"]);
  made.append(element("ul", facts.map(([count, title]) => element("li", [element("b", whole(count)), title])), { class: "facts" }));
  const columns = (rows) => [
    { title: "Key", value: (i) => rows[i].key, node: (i) => name(rows[i].key) },
    { title: "Share", number: true, value: (i) => rows[i].share, text: (i) => percent(rows[i].share) },
    { title: "Rate", number: true, value: (i) => rows[i].rate, text: (i) => rate(rows[i].rate, rows[i].limit), over: (i) => rows[i].rate >= rows[i].limit },
    { title: "Limit", number: true, value: (i) => rows[i].limit, text: (i) => exactly(rows[i].limit) },
    { title: "Passes again", value: (i) => rows[i].free, text: (i) => rows[i].free },
    { title: "Decided by", value: (i) => rows[i].why, node: (i) => (rows[i].why ? name(rows[i].why) : "its rate") },
    { title: "What", value: (i) => rows[i].what, node: (i) => name(rows[i].what) },
  ];
  for (const [title, rows] of [["Blocked", live.over], ["Close to the limit, or over it and not refused", live.close]]) {
    made.append(element("h3", title));
    if (!rows.length) made.append(element("p", "Nobody."));
    else made.append(grid(columns(rows), rows.length, { sorted: 1, caption: "The rate at that time, its share of the limit, and when one more event would pass.", label: "Search", search: (i) => rows[i].key }));
  }
  made.append(element("h3", "Crossings of the last 30 days"));
  if (live.crossings.length) showCrossings(made, live.crossings);
  else made.append(element("p", "None is logged."));
  made.append(element("h3", "Refusals of the last 30 days"));
  if (live.refusals.length) showRefusals(made, live.refusals);
  else made.append(element("p", "None is logged."));
}

function showCrossings(made, rows) {
  made.append(grid([
    { title: "When", value: (i) => rows[i].when, text: (i) => rows[i].when },
    { title: "Key", value: (i) => rows[i].key, node: (i) => name(rows[i].key) },
    { title: "Limit", value: (i) => rows[i].limit, text: (i) => rows[i].limit },
    { title: "Rate", number: true, value: (i) => rows[i].rate, text: (i) => rate(rows[i].rate) },
    { title: "The limit is", value: (i) => rows[i].enforcement, text: (i) => rows[i].enforcement },
    { title: "What was sent", value: (i) => rows[i].judgement, node: (i) => visible(rows[i].judgement) },
  ], rows.length, { sorted: 0, caption: "Each key that went over a limit.", label: "Search", search: (i) => rows[i].key }));
}

function showRefusals(made, rows) {
  const text = (title, field) => ({ title, value: (i) => rows[i][field], node: (i) => (rows[i][field] ? name(rows[i][field]) : "") });
  made.append(grid([
    text("When", "when"), text("Key", "key"), text("Limit", "limit"),
    { title: "Rate", number: true, value: (i) => rows[i].rate, text: (i) => rate(rows[i].rate) },
    text("Policy", "policy"), text("Rule", "rule"), text("Login", "login"), text("Client", "client"),
    text("Sender", "sender"), text("Recipient", "recipient"), text("Message", "message_id"),
  ], rows.length, {
    sorted: 0, caption: "The log of refusals, as exirate events --refusals shows it.", label: "Search",
    search: (i) => ["when", "key", "login", "client", "sender", "recipient", "message_id"].map((field) => rows[i][field]).join(" "),
  }));
}
