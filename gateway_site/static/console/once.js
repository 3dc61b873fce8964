// The page with a secret answers a POST. Reloaded, it would post again, and make yet another value while the
// person holds on to the first; so for the browser's history this page is the list.
document.addEventListener("DOMContentLoaded", () => {
  const page = document.querySelector("[data-afterwards]");
  if (page) history.replaceState(null, "", page.dataset.afterwards);
});
