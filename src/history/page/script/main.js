// The page, from top to bottom.
document.getElementById("about").textContent = log
  ? `${whole(log.total)} messages of ${whole(log.names.length)} ${log.who}, ${time(log.span[0])} to ${time(log.span[1])} (${log.zone}).`
  : "The state of the rate database.";
document.getElementById("made").textContent = `Made by exirate ${data.version} at ${data.made}. ` +
  "The page is one file: it loads nothing and sends nothing.";
// What somebody opens the page for.
if (log) chooseLimit();
for (const note of data.notes) main.append(element("p", visible(note, 400), { class: "quiet text" }));
document.body.append(detail);
if (log) {
  showBusiest();
  if (policy) showPolicy();
  showIdentities();
  showHeat();
}
if (data.live) showLive(data.live);
document.documentElement.dataset.ready = "yes";
