// Names for what the theme and Django's own scripts draw without one, for people who hear the page.
(function () {
  "use strict";

  // A box that suggests rows is drawn beside its select, and named only by what was chosen in it.
  function nameSuggestionBoxes() {
    for (const select of document.querySelectorAll("select.select2-hidden-accessible")) {
      const label = select.labels[0] || document.querySelector(`label[for="${CSS.escape(select.id)}"]`);
      const drawn = select.nextElementSibling;
      const name = (label ? label.textContent : select.name).replace("*", "").trim();
      if (!drawn || !name) continue;
      for (const box of drawn.querySelectorAll("[role=combobox], [role=textbox], .select2-search__field")) {
        if (!box.getAttribute("aria-label")) box.setAttribute("aria-label", name);
      }
    }
  }

  // A picture is written as the word that its font draws; beside other words it is not to be read aloud.
  const PICTURES = ".material-symbols-outlined";
  const NAMES = {
    menu: "Menu", close: "Close", search: "Search", more_horiz: "More", more_vert: "More", dock_to_right: "Sidebar",
    light_mode: "Light", dark_mode: "Dark", computer: "As the system", filter_list: "Filters", person: "Account",
    expand_more: "Show more", chevron_left: "Previous", chevron_right: "Next", arrow_back: "Back", edit: "Edit",
    add: "Add", delete: "Delete", visibility: "Look at it", unfold_more: "More", tune: "Filters",
    keyboard_arrow_down: "Show more", calendar_today: "Choose a day", schedule: "Choose a time",
  };

  function quietPictures() {
    for (const picture of document.querySelectorAll(`${PICTURES}:not([aria-hidden])`)) {
      const control = picture.closest("a, button, [role=button], summary, label");
      if (!control) continue; // it may be all that is said there
      picture.setAttribute("aria-hidden", "true");
      if (control.getAttribute("aria-label") || control.title) continue;
      const rest = control.cloneNode(true);
      rest.querySelectorAll(PICTURES).forEach((each) => each.remove());
      const word = picture.textContent.trim();
      if (!rest.textContent.trim()) control.setAttribute("aria-label", NAMES[word] || word.replaceAll("_", " "));
    }
  }

  // What the theme draws as a link that leads nowhere is a button, for the keyboard too.
  function makeButtons() {
    for (const link of document.querySelectorAll("a:not([href]):not([role])")) {
      if (!link.hasAttribute("x-on:click")) continue;
      link.setAttribute("role", "button");
      link.tabIndex = 0;
      link.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        link.click();
      });
    }
  }

  // The page is drawn in steps, by several scripts, and some parts of it later still.
  let isDue = false;
  function mend() {
    isDue = false;
    nameSuggestionBoxes();
    quietPictures();
    makeButtons();
  }
  document.addEventListener("DOMContentLoaded", () => {
    mend();
    new MutationObserver(() => {
      if (!isDue) requestAnimationFrame(mend);
      isDue = true;
    }).observe(document.body, { childList: true, subtree: true });
  });
})();
