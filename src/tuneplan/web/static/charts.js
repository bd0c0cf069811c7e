// Charts: Vega-Lite specifications that stand in the page, drawn without eval and without a network.
// A chart whose form is the same as before gets new data and is not built again.
"use strict";
globalThis.tuneplanCharts = (() => {
  const NARROW = 480; // pixels of room below which the narrow form of a chart is drawn
  const KEPT = 40; // compiled forms
  const compiled = new Map(); // form of a chart -> what Vega runs
  const live = new Map(); // name of a chart -> { shape, holder, view }
  const theme = JSON.parse(document.getElementById("chart-theme").textContent);
  const system = matchMedia("(prefers-color-scheme: dark)");

  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen === "dark" || (chosen !== "light" && system.matches);
  };

  // The dark colours in the place of the light ones, wherever in a specification they stand.
  const inColours = (part) => {
    if (typeof part === "string") return theme.dark[part] ?? part;
    if (Array.isArray(part)) return part.map(inColours);
    if (part === null || typeof part !== "object") return part;
    return Object.fromEntries(Object.entries(part).map(([name, one]) => [name, inColours(one)]));
  };

  // A specification without its values, and the values by the name that stands in their place.
  const apart = (part, data) => {
    if (Array.isArray(part)) return part.map((one) => apart(one, data));
    if (part === null || typeof part !== "object") return part;
    const made = {};
    for (const [name, one] of Object.entries(part)) {
      if (name === "data" && Array.isArray(one?.values)) {
        const called = `rows_${Object.keys(data).length}`;
        data[called] = one.values;
        made.data = { name: called };
      } else made[name] = apart(one, data);
    }
    return made;
  };

  const config = () => {
    const made = isDark() ? inColours(theme.config) : structuredClone(theme.config);
    made.font = getComputedStyle(document.body).fontFamily;
    made.mark = { ...made.mark, tooltip: true };
    made.legend = { ...made.legend, labelLimit: 240 };
    return made;
  };

  // Nothing is loaded; a mark may link to a page of ours.
  const loader = {
    load: () => Promise.reject(new Error("nothing is loaded")),
    sanitize: (uri) =>
      uri.startsWith("/") && !uri.startsWith("//")
        ? Promise.resolve({ href: uri })
        : Promise.reject(new Error("only our own pages")),
    http: () => Promise.reject(new Error("nothing is loaded")),
    file: () => Promise.reject(new Error("nothing is loaded")),
  };

  const fitted = (specification, room) => {
    const single = !["vconcat", "hconcat", "concat", "facet", "repeat"].some((n) => n in specification);
    if (!single || typeof specification.width !== "number") return specification;
    return { ...specification, width: room, autosize: { type: "fit-x", contains: "padding" } };
  };

  const compile = (shape, specification) => {
    let runtime = compiled.get(shape);
    if (runtime) return runtime;
    const logger = vega.logger(vega.Error);
    const { spec } = vegaLite.compile(specification, { config: config(), logger });
    runtime = vega.parse(spec, null, { ast: true });
    if (compiled.size >= KEPT) compiled.delete(compiled.keys().next().value);
    compiled.set(shape, runtime);
    return runtime;
  };

  const drawOne = async (figure) => {
    const source = figure.querySelector(".specification");
    const drawing = figure.querySelector(".drawing");
    if (!source || !drawing) return;
    const name = figure.dataset.chart;
    const both = JSON.parse(source.textContent);
    // Ten pixels more or less are no reason to build a chart anew.
    const room = Math.max(220, Math.floor(figure.clientWidth / 10) * 10);
    const data = {};
    let specification = fitted(apart(room < NARROW ? both.narrow : both.wide, data), room);
    if (isDark()) specification = inColours(specification);
    const shape = JSON.stringify([specification, isDark()]);
    const before = live.get(name);
    if (before?.shape === shape) {
      if (before.holder !== drawing) {
        before.holder.setAttribute("aria-label", drawing.getAttribute("aria-label"));
        drawing.replaceWith(before.holder);
      }
      for (const [called, rows] of Object.entries(data)) before.view.data(called, rows);
      await before.view.runAsync();
      return;
    }
    before?.view.finalize();
    drawing.replaceChildren();
    const view = new vega.View(compile(shape, specification), {
      expr: vegaInterpreter.expressionInterpreter,
      loader,
      renderer: "svg",
      container: drawing,
      logLevel: vega.Error,
      hover: true,
    });
    for (const [called, rows] of Object.entries(data)) view.data(called, rows);
    live.set(name, { shape, holder: drawing, view });
    await view.runAsync();
    // The drawing has one label, and its figures stand beside it as a table.
    drawing.querySelector("svg").setAttribute("aria-hidden", "true");
  };

  const inSight = (figure) => {
    const { top, bottom } = figure.getBoundingClientRect();
    return bottom >= 0 && top <= innerHeight;
  };

  // The drawing of before takes the place that an answer left for it, until it is drawn anew.
  const keepPlace = (figure) => {
    const before = live.get(figure.dataset.chart);
    const drawing = figure.querySelector(".drawing");
    if (!before || !drawing || before.holder === drawing || !figure.checkVisibility()) return;
    before.holder.setAttribute("aria-label", drawing.getAttribute("aria-label"));
    drawing.replaceWith(before.holder);
  };

  // Charts in sight first; the promise is theirs. The others follow when there is time, unless they
  // are folded away or another answer has come.
  const draw = async (part) => {
    const figures = [...part.querySelectorAll("figure[data-chart]")];
    figures.forEach(keepPlace);
    const seen = figures.filter((figure) => figure.checkVisibility() && inSight(figure));
    await Promise.all(seen.map(drawOne));
    const later = figures.filter((figure) => !seen.includes(figure));
    setTimeout(() => {
      for (const figure of later)
        if (figure.isConnected && figure.checkVisibility()) drawOne(figure);
    });
  };

  const again = () => draw(document);
  system.addEventListener("change", again);
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(again, 150);
  });
  // A chart in something folded has no room until it is opened.
  document.addEventListener("toggle", (event) => event.target.open && draw(event.target), true);
  return { draw, live };
})();
