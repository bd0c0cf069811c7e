// The form talks to the server while one types or slides; without this file it is a plain form.
"use strict";
(() => {
  const form = document.getElementById("form");
  const PATIENCE_MS = 350;
  let waiting = 0;

  // --- sliders ---------------------------------------------------------------------------------

  const stopsOf = (slider) => slider.dataset.stops.split(",").map(Number);
  const numberOf = (slider) => document.getElementById(slider.dataset.slides);

  // Puts a slider at the stop nearest to its number, or to what is assumed in its place.
  const settle = (slider) => {
    const input = numberOf(slider);
    const wanted = Number((input.value || input.placeholder).replace(/[,\s]/g, ""));
    slider.classList.toggle("unset", !input.value);
    if (!Number.isFinite(wanted) || wanted <= 0) {
      slider.setAttribute("aria-valuetext", input.value || "–");
      return;
    }
    const distances = stopsOf(slider).map((stop) => Math.abs(Math.log(stop / wanted)));
    slider.value = String(distances.indexOf(Math.min(...distances)));
    slider.setAttribute("aria-valuetext", String(wanted));
  };
  const settleAll = () => form.querySelectorAll("[data-slides]").forEach(settle);

  // --- asking ----------------------------------------------------------------------------------

  const ask = () => {
    clearTimeout(waiting);
    form.dispatchEvent(new CustomEvent("answer"));
  };

  const changed = (event) => {
    const target = event.target;
    if (target.dataset.slides) {
      const input = numberOf(target);
      const value = String(stopsOf(target)[Number(target.value)]);
      if (input.value === value) return;
      input.value = value;
      target.classList.remove("unset");
      target.setAttribute("aria-valuetext", value);
      ask();
      return;
    }
    form.querySelectorAll(`[data-slides="${CSS.escape(target.id)}"]`).forEach(settle);
    clearTimeout(waiting);
    if (target.matches("select, [type=checkbox], [type=range]")) ask();
    else waiting = setTimeout(ask, PATIENCE_MS);
  };

  if (form) {
    if (!form.hasAttribute("hx-post")) form.addEventListener("input", changed);
    settleAll();
  }

  // Blank fields are no part of the address.
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.verb !== "get") return;
    const kept = new FormData();
    for (const [name, value] of event.detail.formData.entries())
      if (typeof value !== "string" || value.trim() !== "") kept.append(name, value);
    for (const name of [...event.detail.formData.keys()]) event.detail.formData.delete(name);
    for (const [name, value] of kept.entries()) event.detail.formData.append(name, value);
  });

  // --- what an answer says beside the fields ----------------------------------------------------

  const tellBeside = (answer) => {
    const data = answer.querySelector("#beside");
    if (!data || !form) return;
    const { assumed, mistakes } = JSON.parse(data.textContent);
    for (const holder of form.querySelectorAll("[data-field]")) {
      const name = holder.dataset.field;
      const input = document.getElementById(name);
      const wrong = holder.querySelector("[data-wrong]");
      const taken = holder.querySelector("[data-assumed]");
      if (wrong) wrong.textContent = mistakes[name] ?? "";
      if (taken) taken.textContent = assumed[name]?.text ?? "";
      if (!input) continue;
      if (mistakes[name]) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      if (input.placeholder !== undefined && assumed[name]) input.placeholder = assumed[name].value;
    }
    settleAll();
  };

  // What takes longer than a moment is said to be on its way.
  const working = document.getElementById("working");
  let saying = 0;
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.target?.id !== "answer") return;
    event.detail.target.setAttribute("aria-busy", "true");
    clearTimeout(saying);
    saying = setTimeout(() => (working.textContent = working.dataset.text), PATIENCE_MS);
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.target?.id !== "answer") return;
    clearTimeout(saying);
    working.textContent = "";
    document.getElementById("answer")?.removeAttribute("aria-busy");
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target?.id !== "answer") return;
    const answer = document.getElementById("answer");
    if (!answer) return;
    tellBeside(answer);
    tuneplanCharts.draw(answer).then(() => document.dispatchEvent(new Event("answer:drawn")));
    const said = document.getElementById("said");
    said.dataset.tone = answer.dataset.tone;
    const text = said.firstElementChild;
    if (text.textContent !== answer.dataset.said) text.textContent = answer.dataset.said;
    if (answer.dataset.said) text.href = "#answer";
    else text.removeAttribute("href");
    const query = answer.dataset.address.replace(/^[^?]*/, "");
    for (const link of document.querySelectorAll("a[data-keeps]"))
      link.setAttribute("href", link.getAttribute("href").replace(/\?.*$/, "") + query);
  });

  tuneplanCharts.draw(document);

  // --- switches, tables -------------------------------------------------------------------------

  for (const chooser of document.querySelectorAll("[data-switch]"))
    chooser.addEventListener("change", () => {
      const address = new URL(location.href);
      address.searchParams.set(chooser.name, chooser.value);
      location.assign(address);
    });
})();
