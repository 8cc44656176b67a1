"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  /** An element with attributes and children; strings become text, never HTML. */
  const make = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // Tables: the head of a column sorts by it, numbers from the largest at first; what has no number comes last.
  const numberOf = (cell) => parseFloat(cell.textContent.replace(/^[<[]/, ""));
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const numbers = column > 0 && [...body.rows].some((row) => !isNaN(numberOf(row.cells[column])));
        const first = numbers ? "descending" : "ascending";
        const second = numbers ? "ascending" : "descending";
        const order = head.getAttribute("aria-sort") === first ? second : first;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const compare = (a, b) => {
          const [x, y] = [a.cells[column], b.cells[column]];
          if (!numbers) return sign * x.textContent.localeCompare(y.textContent, undefined, { numeric: true });
          if (isNaN(numberOf(x)) || isNaN(numberOf(y))) return isNaN(numberOf(x)) - isNaN(numberOf(y));
          return sign * (numberOf(x) - numberOf(y));
        };
        body.append(...[...body.rows].sort(compare));
      });
    });
  }

  const source = byId("data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const [runA, runB, measure] = [byId("run-a"), byId("run-b"), byId("measure")];
  const fill = (select, names, chosen) => {
    select.append(...names.map((name, i) => make("option", { value: i }, name)));
    select.value = chosen;
  };
  fill(runA, data.runs, data.baseline);
  fill(runB, data.runs, data.runs.length > 1 ? (data.baseline === data.runs.length - 1 ? 0 : data.runs.length - 1) : 0);
  fill(measure, data.measures, 0);
  byId("explorer").hidden = false;

  const value = (run, i) => data.values[run][measure.value][i];
  const number = (x) => (x === null ? "–" : x.toFixed(4));
  const signed = (x) => (x > 0 ? "+" : x < 0 ? "−" : "") + Math.abs(x).toFixed(4);
  const textOf = (i) => (data.shown[i] ? data.shown[i].text : "");

  // The plot: two paths, whatever the number of queries; the cursor is found by its place.
  const bars = byId("bars");
  const draw = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    bars.append(element);
    return element;
  };
  let sorted = [];
  let place = { left: 0, step: 1 };
  let at = -1;
  let cursor = null;

  const sort = () => {
    sorted = data.queries
      .map((_, i) => ({ i, a: value(runA.value, i), b: value(runB.value, i) }))
      .filter(({ a, b }) => a !== null && b !== null)
      .map((found) => ({ ...found, d: Math.abs(found.b - found.a) < 1e-9 ? 0 : found.b - found.a }))
      .sort((x, y) => y.d - x.d || x.i - y.i);
    at = -1;
    const wins = sorted.filter(({ d }) => d > 0).length;
    const losses = sorted.filter(({ d }) => d < 0).length;
    const mean = sorted.reduce((sum, { d }) => sum + d, 0) / (sorted.length || 1);
    const [a, b] = [data.runs[runA.value], data.runs[runB.value]];
    byId("counts").textContent =
      `${b} is better in ${wins} queries, equal in ${sorted.length - wins - losses}, worse in ${losses}; ` +
      `on average ${signed(mean)} ${data.measures[measure.value]}.`;
    bars.setAttribute("aria-label", `${b} minus ${a} in ${data.measures[measure.value]}, a bar per query. ${byId("counts").textContent}`);
    byId("readout").textContent = "";
  };
  const plot = () => {
    bars.replaceChildren();
    const width = bars.clientWidth || 600;
    const height = 220;
    bars.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const [left, right, top, bottom] = [48, width - 4, 8, height - 8];
    const step = (right - left) / (sorted.length || 1);
    place = { left, step };
    const high = Math.max(0, ...sorted.map(({ d }) => d));
    const low = Math.min(0, ...sorted.map(({ d }) => d));
    const range = high - low || 1;
    const y = (d) => top + ((high - d) / range) * (bottom - top);
    for (const tick of new Set([high, 0, low])) {
      draw("path", { class: tick ? "grid" : "axis", d: `M${left} ${y(tick)}H${right}` });
      draw("text", { x: left - 6, y: Math.min(y(tick) + 4, height - 2), "text-anchor": "end" }, tick ? signed(tick).slice(0, range < 0.2 ? 7 : 5) : "0");
    }
    const wide = Math.max(step * (step > 4 ? 0.8 : 1), 0.5);
    for (const [kind, has] of [["gain", (d) => d > 0], ["loss", (d) => d < 0]]) {
      const path = sorted
        .map(({ d }, i) => (has(d) ? `M${(left + i * step).toFixed(2)} ${y(0)}v${(y(d) - y(0)).toFixed(2)}h${wide.toFixed(2)}V${y(0)}z` : ""))
        .join("");
      draw("path", { class: kind, d: path });
    }
    cursor = draw("rect", { class: "cursor", y: top, height: bottom - top, width: Math.max(step, 3), visibility: "hidden" });
    const chosen = sorted.findIndex(({ i }) => query && String(i) === query.value);
    if (chosen >= 0) {
      const x = left + (chosen + 0.5) * step;
      draw("path", { class: "chosen", d: `M${x - 5} ${height}h10l-5 -7z` });
    }
  };
  const point = (index) => {
    if (!sorted.length) return;
    at = Math.min(Math.max(index, 0), sorted.length - 1);
    const { i, a, b, d } = sorted[at];
    cursor.setAttribute("x", place.left + at * place.step);
    cursor.setAttribute("visibility", "visible");
    const about = textOf(i);
    byId("readout").textContent =
      `Query ${data.queries[i]}: ${number(a)} → ${number(b)} (${signed(d)})` + (about ? `. ${about}` : "") +
      (query && !data.shown[i] ? ". Its rankings are not in this page." : "");
  };
  const under = (event) => Math.floor(((event.clientX - bars.getBoundingClientRect().left) - place.left) / place.step);
  const open = () => {
    if (at >= 0 && query && data.shown[sorted[at].i]) {
      query.value = sorted[at].i;
      show();
      byId("rankings").scrollIntoView();
    }
  };
  bars.addEventListener("pointermove", (event) => point(under(event)));
  bars.addEventListener("click", (event) => { point(under(event)); open(); });
  bars.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: sorted.length - 1 };
    if (event.key in moves) point(moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") open();
    else return;
    event.preventDefault();
  });

  // Rankings side by side.
  const query = byId("query");
  const words = (text) => text.match(/[\p{L}\p{N}]+/gu) || [];
  const marked = (text, wanted) =>
    text.split(/([\p{L}\p{N}]+)/u).filter(Boolean).map((part) => (wanted.has(part.toLowerCase()) ? make("mark", {}, part) : part));
  const judged = (grade) => {
    if (grade === null) return make("span", { class: "badge" }, "unjudged");
    if (grade >= data.relevant) return make("span", { class: "badge relevant" }, grade === 1 ? "relevant" : `relevant, grade ${grade}`);
    return make("span", { class: "badge judged" }, "not relevant");
  };
  const moved = (here, there, left) => {
    if (there === null) return make("span", { class: left ? "down" : "up" }, left ? "gone" : "new");
    const up = left ? here - there : there - here;
    const kind = up > 0 ? "up" : up < 0 ? "down" : "still";
    const arrow = up > 0 ? "▲" : up < 0 ? "▼" : "=";
    return make("span", { class: kind }, up ? `${arrow} ${left ? "to" : "from"} ${there}` : "= same rank");
  };
  const list = (target, entries, here, there, left, wanted) => {
    const top = entries.filter(([, , ranks]) => ranks[here] !== null && ranks[here] <= data.top).sort((x, y) => x[2][here] - y[2][here]);
    target.replaceChildren(...top.map(([index, grade, ranks]) => {
      const [id, text] = data.documents[index];
      const head = make("div", { class: "head" }, make("span", { class: "rank" }, String(ranks[here])), judged(grade));
      if (here !== there) head.append(moved(ranks[here], ranks[there], left));
      head.append(make("span", { class: "id" }, id));
      const item = make("li", { class: `document${grade !== null && grade >= data.relevant ? " relevant" : ""}`, "data-document": index }, head);
      if (text) item.append(make("details", unfold.getAttribute("aria-pressed") === "true" ? { open: "" } : {}, make("summary", {}, ...marked(text, wanted))));
      for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]]) {
        item.addEventListener(event, () => {
          for (const same of document.querySelectorAll(`[data-document="${index}"]`)) same.classList.toggle("same", on);
        });
      }
      return item;
    }));
    if (!top.length) target.append(make("li", { class: "document" }, "No documents."));
  };
  const show = () => {
    const i = Number(query.value);
    const { text, entries } = data.shown[i];
    const [a, b] = [Number(runA.value), Number(runB.value)];
    const wanted = new Set(words(text).map((word) => word.toLowerCase()).filter((word) => word.length > 2 && !COMMON.has(word)));
    byId("asked").textContent = text || `Query ${data.queries[i]}`;
    const [head, body] = [byId("scores").tHead, byId("scores").tBodies[0]];
    head.replaceChildren(make("tr", {}, ...["run", ...data.measures].map((name) => make("th", { scope: "col" }, name))));
    body.replaceChildren(...[...new Set([a, b])].map((run) =>
      make("tr", {}, make("th", { scope: "row" }, data.runs[run]), ...data.values[run].map((row) => make("td", {}, number(row[i]))))));
    byId("name-a").textContent = data.runs[a];
    byId("name-b").textContent = data.runs[b];
    list(byId("list-a"), entries, a, b, true, wanted);
    list(byId("list-b"), entries, b, a, false, wanted);
    const missed = entries.filter(([, grade, ranks]) => grade !== null && grade >= data.relevant && !(ranks[a] <= data.top && ranks[a] !== null) && !(ranks[b] <= data.top && ranks[b] !== null));
    byId("below").replaceChildren();
    if (missed.length) {
      const rank = (r) => (r === null ? "not in its list" : `rank ${r}`);
      byId("below").append(make("p", {}, "Relevant, in neither top:"), make("ul", {}, ...missed.map(([index, grade, ranks]) =>
        make("li", {}, `${data.documents[index][0]} (grade ${grade}): ${data.runs[a]} ${rank(ranks[a])}` + (a === b ? "" : `, ${data.runs[b]} ${rank(ranks[b])}`)))));
    }
    const position = order().indexOf(String(i));
    byId("previous").disabled = position <= 0;
    byId("next").disabled = position >= query.options.length - 1;
    plot();
  };
  const COMMON = new Set("a an and are as at be by do does for from has have how in is it its not of on or that the their this to was what when where which who why with".split(" "));
  const unfold = byId("unfold") || make("button", { "aria-pressed": "false" });
  const order = () => [...query.options].map((option) => option.value);
  const refill = () => {
    // Queries in the order of the bars, then those without a value.
    const before = query.value;
    const seen = new Set(sorted.map(({ i }) => i));
    const all = [...sorted.map(({ i, d }) => [i, signed(d)]), ...data.queries.map((_, i) => [i, "–"]).filter(([i]) => !seen.has(i))];
    query.replaceChildren(...all.filter(([i]) => data.shown[i]).map(([i, d]) =>
      make("option", { value: i }, `${d}  ${data.queries[i]}${textOf(i) ? ": " + textOf(i).slice(0, 90) : ""}`)));
    if (before) query.value = before;
  };
  const refresh = () => {
    sort();
    if (query) {
      refill();
      show();
    } else plot();
  };
  if (query) {
    const go = (by) => {
      const values = order();
      query.value = values[Math.min(Math.max(values.indexOf(query.value) + by, 0), values.length - 1)];
      show();
    };
    query.addEventListener("change", show);
    byId("previous").addEventListener("click", () => go(-1));
    byId("next").addEventListener("click", () => go(1));
    unfold.addEventListener("click", () => {
      const on = unfold.getAttribute("aria-pressed") !== "true";
      unfold.setAttribute("aria-pressed", String(on));
      for (const details of document.querySelectorAll(".document details")) details.open = on;
    });
  }
  for (const select of [runA, runB, measure]) select.addEventListener("change", refresh);
  new ResizeObserver(() => plot()).observe(bars);
  refresh();
})();
