"""The style sheet of the report: one column of cards, light or dark as the reader's system is, printable."""

CSS = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2330; --soft: #5b6675; --rule: #e2e6ec; --code: #f3f5f8;
  --c1: #0067a8; --c2: #c77700; --c3: #00845f; --c4: #b3427f; --c5: #8894a3;
  --good: #00714f; --bad: #b42318; --warn: #945400; }
@media (prefers-color-scheme: dark) { :root {
  --page: #10141a; --card: #181e27; --ink: #e6eaf0; --soft: #97a3b3; --rule: #2b3441; --code: #11161d;
  --c1: #5cb3ea; --c2: #f0ab3c; --c3: #3ecf9f; --c4: #e58abf; --c5: #758295;
  --good: #4ad6a6; --bad: #ff8b7e; --warn: #f0b75a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 28px 20px 60px; }
header h1 { font-size: 26px; margin: 0 12px 0 0; display: inline; overflow-wrap: anywhere; }
header p { color: var(--soft); margin: 6px 0 18px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 4px; }
h3 { font-size: 14px; margin: 0 0 2px; }
.chip { display: inline-block; padding: 1px 10px; border-radius: 99px; font-size: 13px; font-weight: 600;
  border: 1px solid currentColor; vertical-align: 4px; color: var(--soft); }
.chip.good { color: var(--good); } .chip.bad { color: var(--bad); } .chip.warn { color: var(--warn); }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 16px 18px; min-width: 0; }
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 14px;
  margin-top: 10px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 14px; margin-top: 14px; }
.tile b { display: block; font-size: 19px; font-weight: 650; white-space: nowrap; font-variant-numeric: tabular-nums; }
.tile { padding: 12px 16px; } .tile span { color: var(--soft); font-size: 13px; }
.headline { margin-bottom: 14px; display: grid; gap: 4px 28px; align-items: center;
  grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); }
.headline .big { font-size: 40px; font-weight: 700; line-height: 1.15; font-variant-numeric: tabular-nums; }
.headline .big small { font-size: 20px; font-weight: 500; color: var(--soft); }
.headline .big .up { color: var(--good); } .headline .big .down { color: var(--bad); }
.verdict { font-size: 16px; margin: 8px 0 0; }
.note, .none { color: var(--soft); font-size: 13px; margin: 0 0 8px; }
.none { padding: 18px 0; margin: 0; }
.alert { border-left: 4px solid var(--bad); margin-bottom: 14px; overflow-wrap: anywhere; }
.alert.warn { border-left-color: var(--warn); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
svg text.row { fill: var(--ink); font-size: 13px; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
svg .span { stroke-width: 4; stroke-linecap: round; opacity: .45; }
svg .dot { opacity: .5; }
svg .hover { fill: var(--ink); opacity: 0; } svg .hover:hover { opacity: .07; }
.c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); }
.c5 { stroke: var(--c5); }
.f1 { fill: var(--c1); } .f2 { fill: var(--c2); } .f3 { fill: var(--c3); } .f4 { fill: var(--c4); }
.f5 { fill: var(--c5); }
.b1 { background: var(--c1); } .b2 { background: var(--c2); } .b3 { background: var(--c3); }
.b4 { background: var(--c4); } .b5 { background: var(--c5); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 12.5px; color: var(--soft); margin: 2px 0 4px; }
.legend i { display: inline-block; width: 16px; height: 3px; border-radius: 2px; margin-right: 6px;
  vertical-align: 4px; }
.legend i.dots { width: 6px; height: 6px; border-radius: 3px; opacity: .6; vertical-align: 2px; }
.legend i.box { width: 10px; height: 10px; vertical-align: 0; }
.scroll { overflow: auto; max-height: 460px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12.5px; }
thead th { position: sticky; top: 0; background: var(--card); }
th, td { padding: 4px 12px 4px 0; border-bottom: 1px solid var(--rule); vertical-align: top;
  overflow-wrap: break-word; }
tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; white-space: nowrap; }
td.bar { width: 34%; min-width: 90px; vertical-align: middle; }
.track { display: block; height: 9px; border-radius: 5px; background: var(--rule); overflow: hidden; }
.track + .track { margin-top: 3px; }
.track i { display: block; height: 100%; }
pre { background: var(--code); border: 1px solid var(--rule); border-radius: 8px; padding: 12px 14px; margin: 8px 0 0;
  font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; max-height: 560px; overflow: auto; tab-size: 4; }
details { margin-top: 10px; } summary { cursor: pointer; font-weight: 600; }
footer { color: var(--soft); font-size: 12.5px; margin-top: 36px; }
@media print { .card { break-inside: avoid; } pre, .scroll { max-height: none; } }
"""
