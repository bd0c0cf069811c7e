// Before the page is drawn: what only a page with scripts shows may be shown.
document.documentElement.classList.add("js");
