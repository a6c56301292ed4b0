// A button in each block of code that copies its text.
document.addEventListener("DOMContentLoaded", () => {
  const words = document.documentElement.lang.startsWith("zh") ? ["复制", "已复制"] : ["Copy", "Copied"];
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-button";
    button.textContent = words[0];
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("pre").textContent);
      button.textContent = words[1];
      setTimeout(() => { button.textContent = words[0]; }, 1500);
    });
    block.append(button);
  }
});
