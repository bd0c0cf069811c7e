// Files that are dropped anywhere on the page go to the box for files, and are sent.
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
})();
