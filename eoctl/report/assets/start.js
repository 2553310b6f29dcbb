// The controls and boxes of the page, and its start.

let axisCanvas;
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
  const list = [make("div", { class: "axis" }, make("div", { class: "name" }), axisCanvas)];
  let kind = "";
  for (const lane of lanes) {
    if (lane.kind !== kind) {
      kind = lane.kind;
      const group = make("div", { class: "group", textContent: TITLES[kind] });
      group.dataset.kind = kind;
      list.push(group);
    }
    list.push(laneBox(lane));
  }
  $("lanes").replaceChildren(...list);
  for (const id of ["controls", "hint"]) $(id).hidden = false;
  for (const code of document.querySelectorAll("code.command")) addCopy(code);
}

function laneBox(lane) {
  const canvas = (lane.canvas = make("canvas", { tabIndex: 0 }));
  const { error = 0, warning = 0 } = lane.findings || {};
  const found = [[error, "error"], [warning, "warning"]].filter(([count]) => count)
    .map(([count, word]) => `${count} ${word}${count > 1 ? "s" : ""}`).join(", ");
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label",
    `${TITLES[lane.kind]}: ${lane.title}${found ? `, ${found}` : ""}, ${lane.marks.count} marks`);
  const name = make("div", { class: "name" }, make("bdi", { textContent: lane.title }));
  const small = [lane.note, found].filter(Boolean).join(" \u00b7 ");
  if (small) name.append(make("span", { class: "small", textContent: small }));
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
