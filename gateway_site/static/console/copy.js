// Copies the text of the element that a button names. Where the page is not on HTTPS or this machine, browsers
// keep the clipboard from scripts: then the text is selected, for the person to copy.
document.querySelectorAll("button[data-copy]").forEach((button) => {
  const source = document.getElementById(button.dataset.copy);
  const words = button.textContent;
  const say = (text) => {
    button.textContent = text;
    setTimeout(() => (button.textContent = words), 2000);
  };
  const select = () => {
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    say("Selected: press Ctrl+C");
  };
  button.addEventListener("click", () => {
    if (!navigator.clipboard) return select();
    navigator.clipboard.writeText(source.textContent).then(() => say("Copied"), select);
  });
});
