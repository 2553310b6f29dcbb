// The rows of a page: unpacked from its one block of data.

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
