// A second click while the first is on its way would do it twice, or be told that it was done already.
document.querySelectorAll("form.confirm-action").forEach((form) => {
  let isSent = false;
  form.addEventListener("submit", (event) => {
    if (isSent) event.preventDefault();
    isSent = true;
  });
  // Who comes back to the page may mean it again.
  window.addEventListener("pageshow", () => (isSent = false));
});
