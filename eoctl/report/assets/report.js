// The timelines of a report: draws lanes, and answers clicks and keys. ES2020, no library.
// All text goes into the page by textContent; nothing is loaded.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (name, props = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(props)) {
      if (key === "class") made.className = value;
      else if (key in made && key !== "list") made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  };

  // --- data ---------------------------------------------------------------------------------------

  async function unpacked() {
    const text = atob($("data").textContent.trim());
    const bytes = Uint8Array.from(text, (each) => each.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  function column(packed, count) {
    if (packed === null) return new Array(count).fill(null);
    if (Array.isArray(packed)) return packed;
    if (packed.s) return packed.i.map((each) => (each === null ? null : packed.s[each]));
    let sum = 0;
    return packed.d.map((each) => (each === null ? null : (sum += each)));
  }

  class Table {
    constructor(kind, packed) {
      this.kind = kind;
      this.count = packed.count;
      this.columns = {};
      for (const [name, each] of Object.entries(packed.columns)) {
        this.columns[name] = column(each, packed.count);
      }
    }
    get(name, row) { return this.columns[name][row]; }
    row(number) {
      return Object.fromEntries(Object.entries(this.columns).map(([name, each]) => [name, each[number]]));
    }
  }

  // --- marks --------------------------------------------------------------------------------------

  // What a mark is: how it looks, in which row of its lane, and what is drawn over what.
  const LOOKS = [
    { name: "committed", row: 1, color: "--committed" },
    { name: "aborted", row: 2, color: "--aborted", hatch: true },
    { name: "epoch", row: 0, color: "--soft", tick: true },
    { name: "note", row: 4, color: "--mild", outline: true },
    { name: "suspected", row: 4, color: "--suspected", hatch: true },
    { name: "proved", row: 4, color: "--proved" },
    { name: "torn", row: 4, color: "--bad", hatch: true },
    { name: "commit", row: 5, color: "--commit", triangle: true },
    { name: "warning", row: 4, color: "--doubtful" },
    { name: "open", row: 3, color: "--open", hatch: true },
    { name: "hanging", row: 3, color: "--open" },
    { name: "error", row: 4, color: "--bad" },
    { name: "state-Empty", row: 6, color: "--empty" },
    { name: "state-Ongoing", row: 6, color: "--ongoing" },
    { name: "state-PrepareCommit", row: 6, color: "--prepare" },
    { name: "state-PrepareAbort", row: 6, color: "--prepare", hatch: true },
    { name: "state-CompleteCommit", row: 6, color: "--committed" },
    { name: "state-CompleteAbort", row: 6, color: "--aborted", hatch: true },
    { name: "state-other", row: 6, color: "--unread", hatch: true },
    { name: "event", row: 5, color: "--bad", triangle: true },
    { name: "deadline", row: 5, color: "--doubtful", triangle: true },
    { name: "kept", row: 6, color: "--volume", hatch: true },
    { name: "session", row: 6, color: "--volume" },
    { name: "expired", row: 6, color: "--unread", hatch: true },
    { name: "leader", row: 6, color: "--committed", label: true },
    { name: "no-leader", row: 6, color: "--bad", hatch: true },
    { name: "unclean", row: 6, color: "--bad", label: true },
    { name: "under-min-isr", row: 6, color: "--doubtful", label: true },
    { name: "up", row: 6, color: "--committed" },
    { name: "fenced", row: 6, color: "--doubtful", hatch: true },
    { name: "gone", row: 6, color: "--unread", hatch: true },
  ];
  const LOOK = Object.fromEntries(LOOKS.map((each, place) => [each.name, place]));
  // Heights of the rows of a lane: volume, committed, aborted, open, findings; then what is drawn over
  // the volume, and the one row of all other lanes. A row without a mark takes no room.
  const TALL = [24, 6, 6, 7, 9], OVER = 5, ALONE = 6, LEAST = 36;
  const TITLES = {
    partition: "Partitions", broker: "Brokers", leader: "Leaders and ISR of partitions",
    id: "Transactional ids", producer: "Producer ids",
  };

  // Marks of a lane in columns: a million of them are four arrays, not a million objects.
  class Marks {
    constructor() { this.raw = []; }
    add(look, table, row, t0, t1, o0, o1, label) {
      this.raw.push([LOOK[look], table, row, t0, t1, o0, o1, label]);
    }
    finish() {
      this.raw.sort((a, b) => a[0] - b[0] || (a[5] ?? a[3] ?? 0) - (b[5] ?? b[3] ?? 0));
      const count = (this.count = this.raw.length);
      this.look = Uint8Array.from(this.raw, (each) => each[0]);
      this.at = {};
      for (const [axis, first] of [["time", 3], ["offset", 5]]) {
        const left = new Float64Array(count), right = new Float64Array(count);
        this.raw.forEach((each, place) => {
          left[place] = each[first] ?? NaN;
          right[place] = Math.max(each[first + 1] ?? left[place], left[place]);
        });
        this.at[axis] = [left, right];
      }
      this.row = Int32Array.from(this.raw, (each) => each[2]);
      this.table = this.raw.map((each) => each[1]);
      this.label = this.raw.some((each) => each[7]) ? this.raw.map((each) => each[7]) : null;
      this.raw = null;
    }
  }

  let tables, lanes, now;
  const view = { axis: "time", from: 0, to: 1, selected: null };
  const range = { first: 0, last: 1 }; // of all times

  function build(data) {
    now = data.now;
    tables = {};
    for (const [kind, each] of Object.entries(data.tables)) tables[kind] = new Table(kind, each);
    lanes = data.lanes.map((each) => ({ ...each, marks: new Marks(), lines: each.marks, volume: {} }));
    const byKey = (kind) => new Map(lanes.filter((e) => e.kind === kind).map((e) => [e.key, e]));
    const partitions = byKey("partition");
    fillVolume(partitions);
    fillTransactions(partitions);
    fillPlaces(partitions);
    fillStates(byKey("id"));
    fillSessions(byKey("producer"));
    fillChanges(byKey("leader"), byKey("broker"));
    let first = Infinity, last = -Infinity;
    const reach = (from, to) => { first = Math.min(first, from); last = Math.max(last, to); };
    for (const lane of lanes) {
      for (const each of lane.volume.time || []) reach(each.t0, each.t1);
      lane.marks.finish();
      layRows(lane);
    }
    for (const lane of first > last ? lanes : []) {
      for (const each of lane.marks.at.time[0]) if (each > 0) reach(each, each);
    }
    if (first > last) reach(now - 1000, now);
    const room = (last - first) * 0.03 + 1;
    [range.first, range.last] = [first - room, last + room];
  }

  // Top and height of each row of a lane.
  function layRows(lane) {
    const used = new Set(Array.from(lane.marks.look, (each) => LOOKS[each].row));
    lane.rows = [[0, TALL[0]]];
    let top = TALL[0] + 2;
    for (let row = 1; row < TALL.length; row++) {
      lane.rows.push([top, TALL[row]]);
      top += used.has(row) ? TALL[row] + 1 : 0;
    }
    lane.rows[OVER] = [0, 8];
    lane.rows[ALONE] = [3, 15];
    lane.height = lane.kind === "partition" ? Math.max(top + 2, LEAST) : 21;
  }

  function fillVolume(partitions) {
    const table = tables.volume;
    for (let row = 0; row < table.count; row++) {
      const lane = partitions.get(table.get("path", row));
      if (!lane) continue;
      const axis = table.get("axis", row);
      (lane.volume[axis] = lane.volume[axis] || []).push({
        t0: table.get("first_timestamp_ms", row), t1: table.get("last_timestamp_ms", row),
        o0: table.get("first_offset", row), o1: table.get("last_offset", row) + 1,
        from: table.get("start", row), to: table.get("end", row),
        bytes: table.get("log_bytes", row), back: table.get("goes_back", row), row,
      });
      lane.last = Math.max(lane.last ?? 0, table.get("last_timestamp_ms", row) ?? 0);
    }
    for (const kind of ["segment", "leader_epoch"]) {
      const found = tables[kind];
      for (let row = 0; row < found.count; row++) {
        const lane = partitions.get(found.get("path", row));
        if (!lane) continue;
        const name = kind === "segment" ? "base_offset" : "first_offset";
        const time = kind === "segment" ? "first_timestamp_ms" : "timestamp_ms";
        const offset = found.get(name, row), at = found.get(time, row);
        lane.marks.add("epoch", kind, row, at, at, offset, offset);
      }
    }
  }

  function fillTransactions(partitions) {
    const table = tables.transaction;
    for (let row = 0; row < table.count; row++) {
      const lane = partitions.get(table.get("path", row));
      if (!lane) continue;
      const state = table.get("state", row), first = table.get("first_offset", row);
      let last = table.get("last_offset", row) ?? first;
      let from = table.get("first_timestamp_ms", row), to = table.get("last_timestamp_ms", row);
      from = from ?? to;
      if (state === "open") { last = lane.end_offset; to = Infinity; }
      const isLate = /hanging|overdue/.test(table.get("verdict", row));
      lane.marks.add(isLate ? "hanging" : state, "transaction", row, from, to, first, last);
      if (table.get("holds_last_stable_offset", row)) lane.held = { time: from, offset: first };
    }
  }

  function fillPlaces(partitions) {
    const findings = tables.finding;
    for (let row = 0; row < findings.count; row++) {
      const lane = partitions.get(findings.get("path", row));
      if (!lane) continue;
      lane.findings = lane.findings || { error: 0, warning: 0, note: 0 };
      const severity = findings.get("severity", row);
      lane.findings[severity] += 1;
      const first = findings.get("base_offset", row) ?? findings.get("last_offset", row);
      const last = findings.get("last_offset", row);
      // What has no time of its own stands at the end: it was found then.
      const time = findings.get("timestamp_ms", row) ?? lane.last ?? now;
      const offset = first ?? lane.first_offset;
      lane.marks.add(severity, "finding", row, time, time, offset, last === null ? offset : last + 1);
    }
    // In each partition that it is told of; where the offset is not known, at the end.
    const torn = tables.torn_transaction, where = ["committed_in", "aborted_in", "open_in", "without_marker"];
    for (let row = 0; row < torn.count; row++) {
      const own = `${torn.get("topic", row)}-${torn.get("partition", row)}`;
      const names = new Set([own, ...where.flatMap((each) => torn.get(each, row))]);
      for (const lane of partitions.values()) {
        const offset = lane.title === own ? torn.get("offset", row) ?? lane.end_offset : lane.end_offset;
        const time = lane.last ?? now;
        if (names.has(lane.title)) lane.marks.add("torn", "torn_transaction", row, time, time, offset, offset);
      }
    }
    const doubled = tables.duplicate;
    for (let row = 0; row < doubled.count; row++) {
      const lane = partitions.get(doubled.get("path", row));
      if (!lane) continue;
      const time = doubled.get("repeat_timestamp_ms", row);
      lane.marks.add(doubled.get("kind", row), "duplicate", row, time, time,
        doubled.get("repeat_base_offset", row), doubled.get("repeat_last_offset", row) + 1);
    }
    const commits = tables.commit;
    for (let row = 0; row < commits.count; row++) {
      const lane = partitions.get(commits.get("path", row));
      const offset = commits.get("committed_offset", row);
      if (!lane || offset === null) continue;
      const time = commits.get("commit_timestamp_ms", row);
      lane.marks.add("commit", "commit", row, time, time, offset, commits.get("log_end_offset", row));
    }
  }

  function fillStates(ids) {
    const table = tables.id_state;
    let lane = null, before = null;
    for (let row = 0; row < table.count; row++) {
      const found = ids.get(table.get("transactional_id", row));
      if (found !== lane) { lane = found; before = null; }
      if (!lane) continue;
      const time = table.get("timestamp_ms", row), status = table.get("status", row);
      if (before) before[4] = Math.max(time ?? before[3], before[3]);
      const look = `state-${status}` in LOOK ? `state-${status}` : "state-other";
      const due = table.get("due_at_ms", row), isNewest = row + 1 === table.count
        || table.get("transactional_id", row + 1) !== table.get("transactional_id", row);
      if (table.get("event", row)) lane.marks.add("event", "id_state", row, time, time, null, null);
      if (due !== null && isNewest) lane.marks.add("deadline", "id_state", row, due, due, null, null);
      lane.marks.add(look, "id_state", row, time, Infinity, null, null);
      before = lane.marks.raw[lane.marks.raw.length - 1];
    }
  }

  function fillSessions(producers) {
    const table = tables.producer;
    for (let row = 0; row < table.count; row++) {
      const lane = producers.get(String(table.get("producer_id", row)));
      if (!lane) continue;
      const first = table.get("first_timestamp_ms", row), last = table.get("last_timestamp_ms", row);
      const expires = table.get("expires_at_ms", row);
      lane.marks.add("kept", "producer", row, last, expires, null, null);
      lane.marks.add("session", "producer", row, first, last, null, null);
      if (table.get("is_expired", row)) lane.marks.add("expired", "producer", row, expires, expires, null, null);
    }
  }

  function fillChanges(leaders, brokers) {
    const table = tables.change, ends = new Map();
    for (let row = 0; row < table.count; row++) {
      const what = table.get("what", row), time = table.get("timestamp_ms", row);
      const lane = what === "partition"
        ? leaders.get(`${table.get("topic", row)}-${table.get("partition", row)}`)
        : brokers.get(String(table.get("broker", row)));
      if (!lane) continue;
      const before = ends.get(lane);
      if (before) before[4] = Math.max(time ?? before[3], before[3]);
      const text = table.get("text", row), leader = table.get("leader", row);
      let look = "up", label = "";
      if (what === "partition") {
        look = leader === null ? "gone" : leader < 0 ? "no-leader"
          : table.get("is_unclean", row) ? "unclean"
            : table.get("is_under_min_isr", row) ? "under-min-isr" : "leader";
        const elr = table.get("elr", row);
        label = `${leader} [${table.get("isr", row)}]${elr ? ` ELR ${elr}` : ""}`;
        if (leader === null || leader < 0) label = text + (elr ? `, ELR ${elr}` : "");
      } else if (/unregistered/.test(text)) look = "gone";
      else if (/(^|, )fenced|registered|shutdown/.test(text)) look = "fenced";
      lane.marks.add(look, "change", row, time, Infinity, null, null, label);
      ends.set(lane, lane.marks.raw[lane.marks.raw.length - 1]);
    }
  }

  // --- axes ---------------------------------------------------------------------------------------

  // From a value of the axis to 0..1 of the whole, and from there to a pixel.
  const share = (lane, value) => (view.axis === "time"
    ? (value - range.first) / (range.last - range.first)
    : (value - lane.first_offset) / Math.max(lane.end_offset - lane.first_offset, 1));
  const valueAt = (lane, place) => (view.axis === "time"
    ? range.first + place * (range.last - range.first)
    : lane.first_offset + place * (lane.end_offset - lane.first_offset));
  const placeAt = (x, width) => view.from + (x / width) * (view.to - view.from);

  const iso = (ms, digits = 23) => {
    const date = new Date(ms);
    return Number.isNaN(date.getTime()) ? String(ms) : `${date.toISOString().slice(0, digits)}Z`;
  };
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 12e4, 3e5, 6e5,
    9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 7776e6, 31536e6, 1e12];

  function drawAxis() {
    const { ctx, width, height } = sized(axisCanvas, 24);
    ctx.fillStyle = css("--soft");
    ctx.font = "11px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    if (view.axis === "offset") {
      ctx.fillText("each lane from its log start to its log end", 2, height / 2);
      return;
    }
    const from = valueAt(null, view.from), to = valueAt(null, view.to);
    const wanted = (to - from) / Math.max(width / 150, 1);
    const step = STEPS.find((each) => each >= wanted) || STEPS[STEPS.length - 1];
    const digits = step < 1e3 ? 23 : step < 6e4 ? 19 : step < 864e5 ? 16 : 10;
    for (let at = Math.ceil(from / step) * step; at < to; at += step) {
      const x = ((at - from) / (to - from)) * width;
      ctx.fillRect(x, height - 5, 1, 5);
      const text = iso(at, digits);
      if (x + ctx.measureText(text).width < width) ctx.fillText(text, x + 3, height / 2 - 1);
    }
  }

  // --- drawing ------------------------------------------------------------------------------------

  let colors = {}, hatches = {};
  const css = (name) => colors[name]
    || (colors[name] = getComputedStyle(document.documentElement).getPropertyValue(name).trim());

  function hatch(ctx, color) {
    if (!hatches[color]) {
      const tile = make("canvas", { width: 6, height: 6 });
      const inner = tile.getContext("2d");
      inner.strokeStyle = color;
      inner.lineWidth = 2;
      inner.beginPath();
      for (const at of [-6, 0, 6]) { inner.moveTo(at - 1, 7); inner.lineTo(at + 7, -1); }
      inner.stroke();
      hatches[color] = ctx.createPattern(tile, "repeat");
    }
    return hatches[color];
  }

  function sized(canvas, height) {
    const ratio = window.devicePixelRatio || 1, width = Math.max(canvas.clientWidth, 50);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    return { ctx, width, height };
  }

  function drawLane(lane) {
    const { ctx, width, height } = sized(lane.canvas, lane.height);
    lane.stale = false;
    const span = view.to - view.from;
    const x = (value) => ((share(lane, value) - view.from) / span) * width;
    if (lane.kind === "partition") {
      drawHeld(ctx, lane, x, width, height);
      drawVolume(ctx, lane, x, width);
      if (view.axis === "offset") drawLines(ctx, lane, x, height);
    }
    drawMarks(ctx, lane, x, width);
  }

  function drawHeld(ctx, lane, x, width, height) {
    if (!lane.held || lane.held[view.axis] === null) return;
    const left = Math.max(x(lane.held[view.axis]), 0);
    ctx.fillStyle = css("--held");
    ctx.fillRect(left, 0, Math.max(width - left, 0), height);
  }

  function drawVolume(ctx, lane, x, width) {
    const bins = lane.volume[view.axis] || [], [, room] = lane.rows[0];
    const sums = new Float64Array(Math.ceil(width) + 1), backs = new Uint8Array(sums.length);
    for (const each of bins) {
      const left = Math.max(Math.floor(x(each.from)), 0);
      const right = Math.min(Math.max(Math.ceil(x(each.to)), left + 1), sums.length);
      const value = each.bytes / Math.max(right - left, 1);
      for (let at = left; at < right; at++) { sums[at] += value; backs[at] |= each.back; }
    }
    const top = sums.reduce((most, each) => Math.max(most, each), 0);
    ctx.fillStyle = css("--volume");
    for (let at = 0; at < sums.length; at++) {
      if (sums[at]) {
        const tall = Math.max((sums[at] / top) * (room - 2), 1.5);
        ctx.fillRect(at, room - tall, 1, tall);
      }
    }
    ctx.fillStyle = css("--doubtful");
    for (let at = 0; at < sums.length; at += 4) if (backs[at]) ctx.fillRect(at, room, 2, 2);
    ctx.fillStyle = css("--line");
    ctx.fillRect(0, room, width, 1);
  }

  function drawLines(ctx, lane, x, height) {
    ctx.font = "10px system-ui, sans-serif";
    for (const [name, offset] of lane.lines) {
      const at = x(offset), bound = name === "HW" || name === "recovery point";
      if (name === "log start") {
        ctx.fillStyle = hatch(ctx, css("--unread"));
        if (at > 0) ctx.fillRect(0, 0, at, TALL[0]);
      }
      ctx.strokeStyle = css(name === "LSO" ? "--open" : "--bound");
      ctx.setLineDash(bound ? [3, 3] : []);
      ctx.beginPath();
      ctx.moveTo(at, 0);
      ctx.lineTo(at, height);
      ctx.stroke();
      ctx.setLineDash([]);
    }
  }

  function drawMarks(ctx, lane, x, width) {
    const marks = lane.marks, [left, right] = marks.at[view.axis];
    const from = valueAt(lane, view.from), to = valueAt(lane, view.to);
    const scale = width / (to - from);
    let look = -1, style = null, top = 0, tall = 0, reached = -1e9;
    for (let place = 0; place < marks.count; place++) {
      const first = left[place];
      if (!(first <= to) || right[place] < from) continue;
      if (marks.look[place] !== look) {
        look = marks.look[place];
        style = LOOKS[look];
        [top, tall] = lane.rows[style.row];
        const color = css(style.color);
        ctx.fillStyle = style.hatch ? hatch(ctx, color) : color;
        ctx.strokeStyle = color;
        reached = -1e9;
      }
      const start = Math.max((first - from) * scale, -2);
      const end = Math.min(Math.max((right[place] - from) * scale, start + 2), width + 2);
      if (end <= reached && end - start <= 2) continue; // there is one already at this pixel
      reached = end;
      if (style.tick) ctx.fillRect(start, 0, 1, TALL[0] - 14);
      else if (style.triangle) triangle(ctx, start, end);
      else if (style.outline) ctx.strokeRect(start + 0.5, top + 1, Math.max(end - start - 1, 3), tall - 2);
      else {
        ctx.fillRect(start, top, end - start, tall);
        if (end - start > 3 && style.row === ALONE) edge(ctx, start, top, tall, style);
        if (style.label && marks.label && end - start > 40) {
          label(ctx, marks.label[place], start + 4, top + tall / 2, end - start - 6, style);
        }
      }
    }
    if (view.selected && view.selected.lane === lane) drawSelected(ctx, lane, from, scale, width);
  }

  function edge(ctx, at, top, tall, style) {
    ctx.fillStyle = css("--page");
    ctx.fillRect(at, top, 1, tall);
    ctx.fillStyle = style.hatch ? hatch(ctx, css(style.color)) : css(style.color);
  }

  function label(ctx, text, at, middle, room, style) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(at, middle - 8, room, 16);
    ctx.clip();
    ctx.font = "10px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    ctx.fillStyle = css("--page");
    ctx.fillText(text, at, middle);
    ctx.restore();
    ctx.fillStyle = css(style.color);
  }

  // With a line to where it ends: what a group has not read yet.
  function triangle(ctx, at, end) {
    if (end - at > 2) ctx.fillRect(at, 1, end - at, 1.5);
    ctx.beginPath();
    ctx.moveTo(at - 5, 0);
    ctx.lineTo(at + 5, 0);
    ctx.lineTo(at, 8);
    ctx.fill();
  }

  function drawSelected(ctx, lane, from, scale, width) {
    const { place } = view.selected, marks = lane.marks;
    const [left, right] = marks.at[view.axis];
    const [top, tall] = lane.rows[LOOKS[marks.look[place]].row];
    const start = Math.max((left[place] - from) * scale, 0);
    const end = Math.min((right[place] - from) * scale, width);
    ctx.strokeStyle = css("--focus");
    ctx.lineWidth = 2;
    ctx.strokeRect(start - 3, top - 2, Math.max(end - start, 2) + 6, tall + 4);
    ctx.lineWidth = 1;
  }

  let pending = false;
  function draw() {
    for (const lane of lanes) lane.stale = true;
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      drawVisible();
    });
  }

  function drawVisible() {
    drawAxis();
    for (const lane of lanes) if (lane.stale && lane.near && !lane.box.hidden) drawLane(lane);
    const shown = $("shown");
    const percent = (each) => `${(each * 100).toFixed(1)} %`;
    shown.textContent = view.axis === "time"
      ? `${iso(valueAt(null, view.from), 19)} to ${iso(valueAt(null, view.to), 19)}`
      : `${percent(view.from)} to ${percent(view.to)} of each lane`;
  }

  // --- zoom ---------------------------------------------------------------------------------------

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

  // --- selection ----------------------------------------------------------------------------------

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
      fields.append(make("div", {}, make("dt", { textContent: name.replace(/_/g, " ") }),
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
    const shown = lanes.filter((each) => !each.box.hidden), at = shown.indexOf(lane);
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
    canvas.addEventListener("pointermove", (event) => {
      if (start === null || !(event.buttons & 1)) return;
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

  // --- search and links ---------------------------------------------------------------------------

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
      group.hidden = !lanes.some((lane) => lane.kind === group.dataset.kind && !lane.box.hidden);
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

  // --- the page -----------------------------------------------------------------------------------

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
      for (const entry of entries) {
        const lane = byBox.get(entry.target);
        lane.near = entry.isIntersecting;
        if (lane.near && lane.stale && !lane.box.hidden) drawLane(lane);
      }
    }, { rootMargin: "300px" });
    for (const lane of lanes) seen.observe(lane.box);
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
    watch();
    setAxis("time");
    drawVisible();
    follow();
    document.documentElement.dataset.ready = "yes";
    // For those who measure and test.
    window.eoctlReport = { lanes, looks: LOOKS, tables, view, zoomTo, drawVisible, setAxis, select, range };
  }).catch((error) => {
    const text = `The timelines cannot be drawn here (${error.message}); all else stands below.`;
    $("lanes").prepend(make("p", { class: "banner doubtful", textContent: text }));
  });
})();
