// Files that are dropped anywhere on the page go to the box for files, and are sent; so are files
// that are chosen beside the form's fields and a text that is pasted into the empty box.
"use strict";
(() => {
  const box = () => document.querySelector("main input[type=file]") ?? document.querySelector("#form input[type=file]");
  const holdsFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

  document.addEventListener("dragover", (event) => {
    if (!holdsFiles(event) || !box()) return;
    event.preventDefault();
    document.documentElement.classList.add("dropping");
  });
  for (const name of ["dragleave", "dragend", "drop"])
    document.addEventListener(name, (event) => {
      if (name !== "dragleave" || event.relatedTarget === null)
        document.documentElement.classList.remove("dropping");
    });
  document.addEventListener("drop", (event) => {
    const input = box();
    if (!holdsFiles(event) || !input) return;
    event.preventDefault();
    const kept = new DataTransfer();
    for (const file of event.dataTransfer.files)
      if (input.multiple || kept.files.length === 0) kept.items.add(file);
    input.files = kept.files;
    input.form.requestSubmit();
  });

  const sending = document.querySelector("#form[hx-post]");
  sending?.addEventListener("paste", ({ target }) => {
    if (!target.matches("textarea") || target.value.trim()) return;
    setTimeout(() => {
      if (target.value.trim()) sending.requestSubmit();
    });
  });
  sending?.addEventListener("change", ({ target }) => {
    if (target.matches("[type=file]") && target.files.length) sending.requestSubmit();
  });
})();
