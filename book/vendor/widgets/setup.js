// Before require.js: modules, and the fonts beside them, are found in this folder.
var require = {
  baseUrl: document.currentScript.src.replace(/[^/]*$/, ""),
  paths: { "@jupyter-widgets": ".", "@jupyter-widgets/html-manager/dist": "." },
};
// After MathJax 3, before html-manager, which asks MathJax 2 for the formulas in labels.
window.MathJax = window.MathJax || {};
MathJax.Hub = { Queue: ([, , element]) => MathJax.typesetPromise && MathJax.typesetPromise([element]) };
