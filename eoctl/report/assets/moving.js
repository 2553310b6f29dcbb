// Zoom, selection, pointer and keys.

function zoomTo(from, to) {
  const width = Math.max(to - from, 1e-9);
  view.from = Math.max(Math.min(from, 1 - width), 0);
  view.to = Math.min(view.from + width, 1);
  draw();
}
function zoom(factor, around = (view.from + view.to) / 2) {
  zoomTo(around - (around - view.from) * factor, around + (view.to - around) * factor);
}
const pan = (part) => {
  const by = (view.to - view.from) * part;
  const shift = by < 0 ? Math.max(by, -view.from) : Math.min(by, 1 - view.to);
  zoomTo(view.from + shift, view.to + shift);
};
const reset = () => zoomTo(0, 1);

function setAxis(axis) {
  view.axis = axis;
  for (const button of $("controls").querySelectorAll("[data-axis]")) {
    button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
  }
  showLanes();
  reset();
}

const WORDS = {
  transaction: "transaction", finding: "finding", duplicate: "duplicate", commit: "committed offset",
  segment: "segment", leader_epoch: "leader epoch", id_state: "state", producer: "producer",
  change: "change", torn_transaction: "torn transaction",
};

function select(lane, place, moves = true) {
  const before = view.selected && view.selected.lane;
  view.selected = { lane, place };
  const marks = lane.marks, [left, right] = marks.at[view.axis];
  const first = share(lane, left[place]);
  const last = share(lane, Math.min(right[place], valueAt(lane, 1)));
  if (moves && !Number.isNaN(first) && (last < view.from || first > view.to)) {
    const half = (view.to - view.from) / 2;
    zoomTo(first - half, first + half);
  }
  if (before && before !== lane) drawLane(before);
  drawLane(lane);
  show(lane, marks.table[place], marks.row[place]);
}

const isTime = (name) => /(timestamp|at)_ms$/.test(name);
const isCount = (name) => /(_count|batches|records|transactions|bytes|offsets)$/.test(name);
function shownValue(name, value) {
  if (value === true || value === false) return value ? "yes" : "no";
  if (isTime(name) && typeof value === "number") return iso(value);
  if (/_ms$/.test(name) && typeof value === "number") return `${value.toLocaleString("en")} ms`;
  if (isCount(name) && typeof value === "number") return value.toLocaleString("en");
  return Array.isArray(value) ? value.join(", ") : String(value);
}

function show(lane, kind, row) {
  const values = tables[kind].row(row), detail = $("detail");
  const offset = values.base_offset ?? values.first_offset ?? values.repeat_base_offset
    ?? values.committed_offset;
  const what = [values.check_id, values.state, values.status, values.kind, values.verdict]
    .filter(Boolean).join(" ");
  const close = make("button", { type: "button", textContent: "close" });
  close.addEventListener("click", () => { detail.hidden = true; lane.canvas.focus(); });
  const fields = make("dl");
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === "" || name === "command" || name === "fix") continue;
    fields.append(make("div", {}, make("dt", { textContent: name.replace(/_ms$/, "").replace(/_/g, " ") }),
      make("dd", { textContent: shownValue(name, value) })));
  }
  const heading = make("h3", {}, make("bdi", { textContent: lane.title }), ` ${WORDS[kind]} ${what}`);
  heading.append(close);
  detail.replaceChildren(heading);
  for (const [name, text] of [["command", "show: "], ["fix", "put right: "]]) {
    if (!values[name]) continue;
    const code = make("code", { class: "command", textContent: values[name] });
    detail.append(make("p", {}, text, code));
    addCopy(code);
  }
  detail.append(fields);
  detail.hidden = false;
  if (lane.kind === "partition" && offset !== undefined && offset !== null) {
    try { history.replaceState(null, "", `#${encodeURIComponent(lane.title)}@${offset}`); }
    catch { /* not everywhere allowed for files */ }
  }
}

function nearest(lane, x, y, width) {
  const marks = lane.marks, [left, right] = marks.at[view.axis];
  const from = valueAt(lane, view.from), scale = width / (valueAt(lane, view.to) - from);
  let best = -1, least = 12;
  for (let place = 0; place < marks.count; place++) {
    const start = (left[place] - from) * scale, end = (right[place] - from) * scale;
    if (Number.isNaN(start)) continue;
    const aside = x < start ? start - x : x > end ? x - end : 0;
    if (aside > 8) continue;
    const [top, tall] = lane.rows[LOOKS[marks.look[place]].row];
    const above = y < top ? top - y : y > top + tall ? y - top - tall : 0;
    const far = aside + above * 1.5 + Math.min(end - start, 400) / 4000;
    if (far <= least) { least = far; best = place; }
  }
  return best;
}

// The marks of a lane in the order of the axis, for who goes from one to the next.
function inOrder(lane) {
  if (!lane.order || lane.order.axis !== view.axis) {
    const [left] = lane.marks.at[view.axis];
    const places = Array.from(left.keys()).filter((each) => !Number.isNaN(left[each]));
    places.sort((a, b) => left[a] - left[b] || a - b);
    lane.order = { axis: view.axis, places };
  }
  return lane.order.places;
}

function step(lane, by) {
  const places = inOrder(lane);
  if (!places.length) return;
  const known = view.selected && view.selected.lane === lane ? places.indexOf(view.selected.place) : -1;
  const next = known < 0 ? (by > 0 ? 0 : places.length - 1) : known + by;
  if (next >= 0 && next < places.length) select(lane, places[next]);
}

function onKey(event, lane) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const shown = lanes.filter((each) => !each.box.hidden && each.group.open !== false);
  const at = shown.indexOf(lane);
  const actions = {
    ArrowRight: () => (event.shiftKey ? pan(0.25) : step(lane, 1)),
    ArrowLeft: () => (event.shiftKey ? pan(-0.25) : step(lane, -1)),
    ArrowDown: () => shown[at + 1] && shown[at + 1].canvas.focus(),
    ArrowUp: () => shown[at - 1] && shown[at - 1].canvas.focus(),
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": reset,
    Enter: () => { const found = $("detail").querySelector("button.copy"); if (found) found.focus(); },
    Escape: () => { $("detail").hidden = true; },
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function listen(lane) {
  const { canvas } = lane;
  let start = null;
  const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointerdown", (event) => { start = at(event); });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("pointermove", (event) => {
    if (start === null || !(event.buttons & 1)) {
      showTip(lane, event);
      return;
    }
    hideTip();
    drawLane(lane);
    const ctx = canvas.getContext("2d");
    ctx.globalAlpha = 0.25;
    ctx.fillStyle = css("--focus");
    ctx.fillRect(Math.min(start, at(event)), 0, Math.abs(at(event) - start), canvas.clientHeight);
    ctx.globalAlpha = 1;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const width = canvas.clientWidth, end = at(event), begin = start;
    start = null;
    if (Math.abs(end - begin) > 6) {
      const sides = [placeAt(begin, width), placeAt(end, width)].sort((a, b) => a - b);
      zoomTo(...sides);
      return;
    }
    const box = canvas.getBoundingClientRect();
    const found = nearest(lane, end, event.clientY - box.top, width);
    if (found >= 0) select(lane, found, false);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.3 : 1 / 1.3, placeAt(at(event), canvas.clientWidth));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => onKey(event, lane));
}

// What a mark is, beside the pointer.
const hideTip = () => { $("tip").hidden = true; };
function showTip(lane, event) {
  const box = lane.canvas.getBoundingClientRect(), tip = $("tip");
  const found = nearest(lane, event.clientX - box.left, event.clientY - box.top, box.width);
  if (found < 0) {
    hideTip();
    return;
  }
  const { marks } = lane, kind = marks.table[found], values = tables[kind].row(marks.row[found]);
  const what = [values.check_id, values.state, values.status, values.verdict].filter(Boolean).join(" ");
  const offset = values.base_offset ?? values.first_offset ?? values.repeat_base_offset;
  const time = values.first_timestamp_ms ?? values.timestamp_ms;
  const parts = [`${WORDS[kind]} ${what}`.trim()];
  if (offset !== null && offset !== undefined) parts.push(`offset ${offset}`);
  if (typeof time === "number") parts.push(iso(time, 19));
  const said = values.message || values.text || values.transactional_id || "";
  tip.textContent = parts.join(", ") + (said ? `: ${said}` : "");
  tip.hidden = false;
  const left = Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

function listenToMap() {
  const move = (event) => {
    if (!(event.buttons & 1)) return;
    const box = mapCanvas.getBoundingClientRect(), half = (view.to - view.from) / 2;
    const middle = Math.min(Math.max((event.clientX - box.left) / box.width, half), 1 - half);
    zoomTo(middle - half, middle + half);
  };
  mapCanvas.addEventListener("pointerdown", move);
  mapCanvas.addEventListener("pointermove", move);
}
