// The slider of a trial's result: it shows what had happened by then. It has no imports, since a shared file has it too.

/** followTime lets the slider in a result show a moment of it. Most happens early, so its scale is logarithmic. */
export function followTime(root) {
  if (!root.querySelector('.trial-slider')) return; // nothing happened
  for (const element of root.querySelectorAll('[data-left]')) {
    element.style.setProperty('left', `${element.dataset.left}%`);
    if (element.dataset.width) element.style.setProperty('width', `max(4px, ${element.dataset.width}%)`);
  }
  const steps = 100, whole = Number(root.dataset.end);
  const slider = root.querySelector('.trial-slider'), label = root.querySelector('.trial-now');
  const timed = [...root.querySelectorAll('[data-at]')], states = [...root.querySelectorAll('.trial-states')];
  const text = (s) => (s < 3600 ? `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}` : `${Math.floor(s / 3600)}h${String(Math.floor((s % 3600) / 60)).padStart(2, '0')}`);
  const show = () => {
    const step = Number(slider.value), end = step >= steps, now = Math.round((1 + whole) ** (step / steps) - 1);
    for (const element of timed) element.classList.toggle('later', !end && Number(element.dataset.at) > now);
    for (const group of states) { // of each, the newest state
      const past = [...group.children].filter((s) => end || Number(s.dataset.at) <= now), shown = past[past.length - 1];
      for (const s of group.children) s.hidden = s !== shown;
    }
    label.textContent = end ? 'At the end' : `After ${text(now)}`;
    slider.setAttribute('aria-valuetext', label.textContent);
    root.style.setProperty('--now', `${(step / steps) * 100}%`);
    root.classList.toggle('is-early', !end);
  };
  slider.addEventListener('input', show);
  show();
}
