// The theme reads the search box when a key is released. Words also arrive without one: pasted with
// the mouse, dictated, or chosen from the list of an input method.
document.addEventListener("input", ({ target }) => {
  if (target.matches(".md-search__input")) target.dispatchEvent(new Event("keyup"))
})
