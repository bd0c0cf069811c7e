// A line of a chart that is dragged to another place: the figure there goes into its field.
"use strict";
(() => {
  const EVERY_MS = 60;
  let dragged = null; // the figure whose line is held
  let asked = 0;

  const specificationOf = (figure) => JSON.parse(figure.querySelector(".specification").textContent);
  const fieldOf = (figure) => {
    const name = figure && specificationOf(figure).wide.usermeta?.drags;
    return name ? document.getElementById(name) : null;
  };

  // The figure at a place: how far along the logarithm of its bar.
  const valueAt = (figure, event) => {
    const { view } = tuneplanCharts.live.get(figure.dataset.chart);
    const drawing = figure.querySelector(".drawing svg");
    const box = drawing.getBoundingClientRect();
    const scaled = box.width / drawing.width.baseVal.value;
    const scale = view.scale("x");
    const bars = specificationOf(figure).wide.layer[0].data.values;
    const place = (event.clientX - box.left) / scaled - view.origin()[0] - scale(bars[0].tokens);
    const along = Math.max(0, Math.min(bars.length, place / scale.step()));
    const number = Math.min(bars.length - 1, Math.floor(along));
    const { low, high } = bars[number];
    const share = Math.min(1, ((along - number) * scale.step()) / scale.bandwidth());
    const value = low > 0 ? low * (high / low) ** share : high * share;
    return String(Math.max(1, value < 64 ? Math.round(value) : Math.round(value / 8) * 8));
  };

  const move = (event) => {
    const field = fieldOf(dragged);
    if (!field) return;
    const value = valueAt(dragged, event);
    if (field.value === value) return;
    field.value = value;
    clearTimeout(asked);
    asked = setTimeout(() => field.form.dispatchEvent(new CustomEvent("answer")), EVERY_MS);
  };

  document.addEventListener("pointerdown", (event) => {
    const figure = event.target.closest?.(".drawing")?.closest("figure[data-chart]");
    if (event.button !== 0 || !fieldOf(figure)) return;
    dragged = figure;
    event.preventDefault();
    move(event);
  });
  document.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    // The answer may have been drawn anew meanwhile.
    dragged = document.querySelector(`figure[data-chart="${CSS.escape(dragged.dataset.chart)}"]`);
    if (dragged) move(event);
  });
  for (const name of ["pointerup", "pointercancel"])
    document.addEventListener(name, () => (dragged = null));
})();
