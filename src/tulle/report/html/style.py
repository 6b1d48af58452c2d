"""The look of a page: one column on a phone, light or dark as the reader's system is."""

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --faint: #57606a;
  --rule: #d0d7de; --soft: #f6f8fa; --good: #1a7f37; --bad: #b42318; --open: #6a4bbc;
  --panel: #ffffff; --grid: #e3e6ea; --axis: #8c959f; --series-1: #0072b2; --series-2: #d55e00;
  --series-3: #009e73; --series-4: #cc79a7; --series-5: #e69f00; --series-6: #56b4e9; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0f1419; --ink: #e6edf3; --faint: #9aa4af; --rule: #30363d; --soft: #171d24;
    --good: #4ac26b; --bad: #ff8a80; --open: #b39dff; --panel: #161c23; --grid: #2a3139;
    --axis: #7d8793; --series-1: #3a9bdc; --series-2: #f0803c; --series-3: #2fbf94;
    --series-4: #e09ac4; --series-5: #f0b43c; --series-6: #8fd0f5; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-size: 16px; }
main { max-width: 1080px; margin: 0 auto; padding: 16px; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0.4em 0; }
h2 { font-size: 1.15rem; margin: 2em 0 0.6em; padding-top: 0.6em;
  border-top: 1px solid var(--rule); }
p, ul { margin: 0.6em 0; max-width: 75ch; }
.verdict { border-left: 6px solid var(--open); background: var(--soft); padding: 12px 16px;
  border-radius: 4px; margin: 12px 0; }
.verdict strong { font-size: 1.1rem; color: var(--open); }
.verdict.private { border-color: var(--good); }
.verdict.private strong { color: var(--good); }
.verdict.open { border-color: var(--bad); }
.verdict.open strong { color: var(--bad); }
.verdict dl { display: flex; flex-wrap: wrap; gap: 10px 32px; margin: 12px 0 4px; }
.verdict dt { color: var(--faint); font-size: 0.85rem; }
.verdict dd { margin: 0; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.figures { display: grid; gap: 0 16px; align-items: start; margin: 16px 0 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); }
.figures.packed { display: block; columns: 2 380px; column-gap: 16px; }
figure { min-width: 0; margin: 0 0 16px; padding: 8px;
  border: 1px solid var(--rule); border-radius: 6px; background: var(--panel);
  break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums; }
figcaption { font-size: 0.9rem; margin-bottom: 8px; }
figcaption b { display: block; }
summary { cursor: pointer; font-size: 0.9rem; padding: 4px 0; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 4px 10px 4px 0;
  border-bottom: 1px solid var(--rule); overflow-wrap: normal; word-break: normal; }
td.text { max-width: 34em; overflow-wrap: break-word; }
th.number { text-align: right; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; background: var(--soft); padding: 10px; font-size: 0.8rem; }
footer { color: var(--faint); font-size: 0.85rem; margin: 3em 0 1em; }
@media print { figure, .verdict { break-inside: avoid; } }
"""
