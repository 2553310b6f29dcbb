// Search, and links to an offset.

let sought = "";
function isSought(lane) {
  if (!sought) return true;
  if (`${lane.title} ${lane.note} ${lane.kind}`.toLowerCase().includes(sought)) return true;
  if (lane.kind !== "partition") return false;
  if (!lane.words) {
    const words = new Set(), { marks } = lane;
    for (let place = 0; place < marks.count; place++) {
      const table = tables[marks.table[place]], row = marks.row[place];
      for (const name of ["transactional_id", "producer_id", "check_id", "group"]) {
        const value = table.columns[name] && table.get(name, row);
        if (value !== null && value !== undefined) words.add(String(value).toLowerCase());
      }
    }
    lane.words = [...words];
  }
  return /^\d+$/.test(sought) ? lane.words.includes(sought)
    : lane.words.some((each) => each.includes(sought));
}
const isShown = (lane) => (view.axis === "time" || lane.kind === "partition") && isSought(lane);

function showLanes() {
  for (const lane of lanes) lane.box.hidden = !isShown(lane);
  for (const group of document.querySelectorAll(".group")) {
    const own = lanes.filter((lane) => lane.group === group && !lane.box.hidden);
    group.hidden = !own.length;
    if (sought && own.length && group.tagName === "DETAILS") group.open = true;
  }
  return lanes.filter((lane) => !lane.box.hidden).length;
}

function search(text) {
  sought = text.trim().toLowerCase();
  const count = showLanes();
  $("found").textContent = sought ? `${count} of ${lanes.length} lanes` : "";
  draw();
}

// #txn-0@311: the mark that has this offset; what is wrong before what is not.
function follow() {
  const match = /^#(.+)@(\d+)$/.exec(location.hash);
  if (!match) return;
  let title = match[1];
  try { title = decodeURIComponent(title); } catch { /* as it is */ }
  const lane = lanes.find((each) => each.kind === "partition" && each.title === title);
  if (!lane) return;
  const offset = Number(match[2]), { marks } = lane, [left, right] = marks.at.offset;
  let best = -1, width = Infinity, look = -1;
  for (let place = 0; place < marks.count; place++) {
    if (!(left[place] <= offset && offset <= right[place]) || LOOKS[marks.look[place]].tick) continue;
    const own = right[place] - left[place];
    const exact = left[place] === offset ? 100 : 0;
    if (exact + marks.look[place] > look || (exact + marks.look[place] === look && own < width)) {
      best = place;
      width = own;
      look = exact + marks.look[place];
    }
  }
  if (lane.box.hidden) { $("search").value = ""; search(""); }
  lane.near = true;
  if (lane.group.tagName === "DETAILS") lane.group.open = true;
  lane.box.scrollIntoView({ block: "center" });
  if (best < 0) { setAxis("offset"); return; }
  if (Number.isNaN(marks.at[view.axis][0][best])) setAxis("offset");
  select(lane, best);
  lane.canvas.focus({ preventScroll: true });
}

function addCopy(code) {
  const button = make("button", { type: "button", class: "copy", textContent: "copy" });
  button.setAttribute("aria-label", `copy ${code.textContent}`);
  button.addEventListener("click", async () => {
    const copied = navigator.clipboard?.writeText(code.textContent) ?? Promise.reject();
    let done = await copied.then(() => true, () => false);
    if (!done) {
      const chosen = getSelection();
      chosen.selectAllChildren(code);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "copied" : "selected: press Ctrl+C";
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });
  code.after(button);
}

// From a lane to its first finding; false: none is in the table.
function toFinding(lane) {
  const links = [...document.querySelectorAll("#findings td:first-child a")];
  const link = links.find((each) => {
    try { return decodeURIComponent(each.hash).startsWith(`#${lane.title}@`); } catch { return false; }
  });
  if (!link) return false;
  link.closest("details").open = true;
  link.scrollIntoView({ block: "center" });
  link.focus();
  return true;
}

// The rows of a table as they are shown, by RFC 4180.
function csvOf(table) {
  const cell = (each) => {
    const text = (each.querySelector("code") || each).textContent;
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return [...table.rows].map((row) => [...row.cells].map(cell).join(",")).join("\r\n") + "\r\n";
}

function addCsv(details) {
  const summary = details.querySelector("summary"), name = summary.textContent.replace(/ \(.*$/, "");
  const button = make("button", { type: "button", textContent: "CSV", title: `${name} as CSV` });
  button.addEventListener("click", (event) => {
    event.preventDefault();
    const link = make("a", { download: `${name}.csv` });
    link.href = URL.createObjectURL(new Blob([csvOf(details.querySelector("table"))], { type: "text/csv" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  summary.after(button);
}
