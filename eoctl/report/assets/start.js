// The controls and boxes of the page, and its start.

let axisCanvas, mapCanvas;
function buildPage() {
  const button = (text, title, action) => {
    const made = make("button", { type: "button", textContent: text, title });
    made.addEventListener("click", action);
    return made;
  };
  const axis = (name, text, title) => {
    const made = button(text, title, () => setAxis(name));
    made.dataset.axis = name;
    return made;
  };
  const input = make("input", { id: "search", type: "search", placeholder: "topic, id, producer id, rule" });
  input.setAttribute("aria-label", "search lanes");
  input.addEventListener("input", () => search(input.value));
  $("controls").append(
    axis("time", "by time", "one axis of record timestamps, UTC"),
    axis("offset", "by offset", "each partition from its log start to its log end"),
    button("+", "zoom in (+)", () => zoom(0.5)), button("\u2212", "zoom out (-)", () => zoom(2)),
    button("all", "see all (0)", reset), input,
    make("span", { id: "found", class: "shown", role: "status" }),
    make("span", { id: "shown", class: "shown" }),
  );
  axisCanvas = make("canvas");
  axisCanvas.setAttribute("aria-hidden", "true");
  mapCanvas = make("canvas");
  mapCanvas.setAttribute("aria-hidden", "true");
  listenToMap();
  const list = [
    make("div", { class: "axis map" }, make("div", { class: "name small", textContent: "all of it" }), mapCanvas),
    make("div", { class: "axis" }, make("div", { class: "name" }), axisCanvas),
  ];
  for (const [kind, title] of Object.entries(TITLES)) {
    const own = lanes.filter((each) => each.kind === kind);
    const wrong = kind === "partition" ? own.filter((each) => !each.is_healthy) : [];
    const others = own.filter((each) => !wrong.includes(each));
    if (wrong.length) list.push(groupBox("div", kind, title, wrong), ...wrong.map(laneBox));
    const what = kind === "partition"
      ? `${others.length} partition${others.length > 1 ? "s" : ""} without a finding`
      : `${title} (${others.length})`;
    if (others.length) list.push(groupBox("details", kind, what, others));
  }
  $("lanes").replaceChildren(...list);
  document.body.append(make("div", { id: "tip", hidden: true, role: "presentation" }));
  for (const each of document.querySelectorAll("details.rows")) addCsv(each);
  document.addEventListener("pointerover", ({ target }) => {
    const cell = target.closest && target.closest("td");
    if (cell && cell.scrollWidth > cell.clientWidth) cell.title = cell.innerText.replace(/\s*copy$/, "");
  });
  for (const id of ["controls", "hint"]) $(id).hidden = false;
  for (const code of document.querySelectorAll("code.command")) addCopy(code);
}

// What lanes of a kind stand under; those that are fine, or not of partitions, are closed at first.
function groupBox(element, kind, text, own) {
  const group = make(element, { class: "group" });
  group.dataset.kind = kind;
  for (const lane of own) lane.group = group;
  if (element === "div") {
    group.textContent = text;
    return group;
  }
  group.append(make("summary", { textContent: text }), ...own.map(laneBox));
  group.addEventListener("toggle", () => {
    for (const lane of own) lane.stale = true;
    drawVisible();
  });
  return group;
}

function laneBox(lane) {
  const canvas = (lane.canvas = make("canvas", { tabIndex: 0 }));
  const { error = 0, warning = 0, note = 0 } = lane.findings || {};
  const found = [[error, "error"], [warning, "warning"], [note, "note"]].filter(([count]) => count)
    .map(([count, word]) => `${count} ${word}${count > 1 ? "s" : ""}`).join(", ");
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label",
    `${TITLES[lane.kind]}: ${lane.title}${found ? `, ${found}` : ""}, ${lane.marks.count} marks`);
  const name = make("div", { class: "name" }, make("bdi", { textContent: lane.title }));
  if (found) {
    const link = make("a", { class: "small", href: "#findings", textContent: found });
    link.addEventListener("click", (event) => { if (toFinding(lane)) event.preventDefault(); });
    name.append(link);
  }
  if (lane.note) name.append(make("span", { class: "small", textContent: lane.note }));
  name.title = [lane.title, found, lane.note].filter(Boolean).join(" \u00b7 ");
  lane.box = make("div", { class: "lane" }, name, canvas);
  canvas.style.height = `${lane.height}px`;
  lane.near = false;
  listen(lane);
  return lane.box;
}

function watch() {
  const byBox = new Map(lanes.map((each) => [each.box, each]));
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const lane = byBox.get(target);
      if (!lane) continue; // the axis: it is there on pages without a lane, too
      lane.near = isIntersecting;
      if (lane.near && lane.stale && !lane.box.hidden) drawLane(lane);
    }
    document.documentElement.dataset.ready = "yes"; // what is near is known, and drawn
  }, { rootMargin: "300px" });
  for (const each of [...byBox.keys(), axisCanvas]) seen.observe(each);
  const recolor = () => { colors = {}; hatches = {}; draw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
  window.addEventListener("resize", draw);
  window.addEventListener("hashchange", follow);
  window.addEventListener("beforeprint", () => {
    colors = {}; hatches = {};
    for (const lane of lanes) if (!lane.box.hidden) drawLane(lane);
  });
}

unpacked().then((data) => {
  build(data);
  buildPage();
  setAxis("time");
  drawVisible();
  follow();
  watch();
  // For those who measure and test.
  window.eoctlReport = { lanes, looks: LOOKS, tables, view, zoomTo, drawVisible, setAxis, select, range };
}).catch((error) => {
  const text = `The timelines cannot be drawn here (${error.message}); all else stands below.`;
  $("lanes").prepend(make("p", { class: "banner doubtful", textContent: text }));
});
