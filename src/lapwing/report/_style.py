"""The style sheet of a report: one column, light or dark as the browser prefers; wide tables scroll on their own."""

STYLE = """
:root { color-scheme: light dark; --paper: #f6f8fa; --card: #ffffff; --ink: #1f2933; --soft: #616e7c;
        --line: #e4e7eb; --accent: #2a7de1; --good: #2e9e5b; --bad: #d1453b; --amber: #b8860b; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --card: #161b22; --ink: #e6edf3; --soft: #9aa5b1; --line: #2d333b; --accent: #58a6ff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
       Roboto, sans-serif; overflow-wrap: anywhere; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .75rem; }
h3, h4 { font-size: 1rem; }
p { margin: .5rem 0; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.state { display: inline-block; border-radius: 1rem; padding: 0 .7rem; font-size: .85rem; font-weight: 600;
         color: #ffffff; background: var(--bad); vertical-align: .15em; }
.state.finished { background: var(--good); } .state.running { background: #2a7de1; }
.state.paused { background: var(--amber); } .state.stopped { background: #6b7785; }
.state.preempted { background: var(--amber); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(7rem, 1fr)); gap: .75rem; margin: 1.25rem 0; }
.tile, figure, .card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
.tile { padding: .6rem .8rem; } .tile b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .85rem; }
figure { margin: 0 0 1rem; padding: .6rem; overflow: hidden; }
figure img { display: block; width: 100%; height: auto; } figcaption { padding: .4rem .3rem 0; }
figure img.pixels { image-rendering: pixelated; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 0 1rem; }
.card { padding: .4rem 1rem; } .card img { max-width: 100%; height: auto; background: #ffffff; border-radius: .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; } tr:last-child td { border-bottom: 0; }
.numbers :is(th, td):not(:first-child) { text-align: right; white-space: nowrap; }
.numbers :is(th, td):first-child { white-space: nowrap; } .total td { font-weight: 600; }
code, pre { font: .85em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { background: var(--line); border-radius: .3rem; padding: .05rem .3rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .6rem .8rem;
      overflow-x: auto; }
ul { padding-left: 1.2rem; } li { margin: .25rem 0; }
details { margin: .75rem 0; } summary { cursor: pointer; color: var(--accent); }
"""
