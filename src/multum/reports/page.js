(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripted");
  const data = JSON.parse(document.getElementById("data").textContent);
  const make = (name, text, kind) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  // Light and dark: the system's choice until the reader makes another one.
  const remembered = { get: () => { try { return localStorage.getItem("multum-theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("multum-theme", value); } catch { /* a page opened from a file may not */ } } };
  const before = remembered.get();
  if (before === "light" || before === "dark") root.dataset.theme = before;
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    remembered.set(root.dataset.theme);
  });

  // The table: a heading sorts, the best first; a second click reverses. Rows without a number stay last.
  for (const table of document.querySelectorAll("table.comparison")) {
    const headings = [...table.tHead.rows[1].cells];
    headings.forEach((heading, at) => heading.querySelector("button").addEventListener("click", () => {
      const words = heading.dataset.kind === "text";
      const first = heading.dataset.better === "higher" ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = heading.getAttribute("aria-sort") === first ? other : first;
      for (const each of headings) each.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const value = (row) => {
        const text = row.cells[at]?.dataset.value;
        return text === undefined ? null : words ? text : Number(text);
      };
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a), y = value(b);
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * (words ? x.localeCompare(y) : x - y);
      });
      body.append(...rows);
    }));
  }

  // Circles: the nearest one to the pointer, or the one that has the focus, shows its numbers.
  const tip = document.getElementById("tip");
  let shown = null;
  const hide = () => {
    if (!shown) return;
    shown.classList.remove("on");
    shown.closest(".plot").classList.remove("active");
    shown.removeAttribute("aria-describedby");
    tip.hidden = true;
    shown = null;
  };
  const show = (point) => {
    if (point === shown) return;
    hide();
    const facts = data.points[point.id.slice(point.id.lastIndexOf("point-"))];
    if (!facts) return;
    shown = point;
    point.classList.add("on");
    point.closest(".plot").classList.add("active");
    point.setAttribute("aria-describedby", "tip");
    const name = make("p");
    const swatch = make("span", "", "swatch " + facts.fill);
    swatch.style.setProperty("--of", facts.colour);
    name.append(swatch, make("span", facts.label));
    const list = make("dl");
    for (const [title, value] of facts.facts) list.append(make("dt", title), make("dd", value));
    tip.replaceChildren(name, list);
    tip.hidden = false;
    place();
  };
  const place = () => {
    const circle = shown.getBoundingClientRect(), box = tip.getBoundingClientRect();
    const wide = root.clientWidth, high = root.clientHeight;
    if (circle.bottom < 0 || circle.top > high) return hide();
    let x = circle.right + 12, y = circle.top + circle.height / 2 - box.height / 2;
    if (x + box.width > wide - 8) x = circle.left - box.width - 12;
    if (x < 8) {
      x = Math.min(Math.max(8, circle.left + circle.width / 2 - box.width / 2), wide - box.width - 8);
      y = circle.bottom + 12 + box.height > high - 8 && circle.top - box.height > 20 ? circle.top - box.height - 12 : circle.bottom + 12;
    }
    y = Math.min(Math.max(8, y), Math.max(8, high - box.height - 8));
    tip.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  };
  for (const plot of document.querySelectorAll(".pointed")) {
    const points = [...plot.querySelectorAll(".point")];
    const nearest = (event) => {
      let closest = null, least = Infinity;
      for (const point of points) {
        const box = point.getBoundingClientRect();
        const away = Math.hypot(event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2);
        if (away < least && away < Math.max(box.width / 2, 16)) [closest, least] = [point, away];
      }
      const name = event.target.closest?.(`[id*="name-"]`);
      return closest ?? (name ? document.getElementById(name.id.replace("name-", "point-")) : null);
    };
    const look = (event) => {
      const point = nearest(event);
      if (point) show(point); else hide();
    };
    plot.addEventListener("pointermove", look);
    plot.addEventListener("pointerdown", look);
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    for (const point of points) {
      point.addEventListener("focus", () => show(point));
      point.addEventListener("blur", hide);
    }
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", () => { if (shown) place(); }, { passive: true });
  addEventListener("pointerdown", (event) => { if (!event.target.closest?.(".pointed")) hide(); });

  // The numbers of a figure: a table, built when it is first opened, and CSV.
  const quoted = (value) => value === null ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value);
  const csv = (frame) => [frame.columns, ...frame.rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch {
      const area = make("textarea", text);
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  for (const details of document.querySelectorAll("details.numbers")) {
    const frame = data.frames[details.dataset.frame];
    details.addEventListener("toggle", () => {
      const place = details.querySelector(".scroll");
      if (!details.open || place.firstChild) return;
      const words = frame.columns.map((_, at) => frame.rows.some((row) => typeof row[at] === "string"));
      const table = make("table"), head = table.createTHead().insertRow(), body = table.createTBody();
      frame.columns.forEach((name, at) => head.append(make("th", name, words[at] ? "words" : "")));
      for (const row of frame.rows) {
        const line = body.insertRow();
        row.forEach((value, at) => line.append(make("td", value === null ? "–" : String(value), words[at] ? "words" : "")));
      }
      place.append(table);
    });
    const status = details.querySelector("[role=status]");
    details.querySelector("[data-do=copy]").addEventListener("click", async () => {
      status.textContent = await copy(csv(frame)) ? "copied" : "could not copy";
    });
    details.querySelector("[data-do=download]").addEventListener("click", () => {
      const link = make("a");
      link.href = URL.createObjectURL(new Blob([csv(frame)], { type: "text/csv" }));
      link.download = details.dataset.frame + ".csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      button.textContent = await copy(button.dataset.copy) ? "Copied" : "Could not copy";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
})();
