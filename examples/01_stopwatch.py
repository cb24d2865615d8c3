"""Where does the time go? A stopwatch for a question asked once, laps for a loop."""

import time

import lapwing as lw

watch = lw.Stopwatch()
with watch:
    time.sleep(0.02)
    watch.lap()
    time.sleep(0.01)
    watch.lap()
print("laps of the stopwatch:", [f"{seconds * 1000:.0f} ms" for seconds in watch.lap_times()])

laps = lw.Laps()
for _ in range(10):
    with laps("attack"):
        time.sleep(0.004)
    with laps("update"):
        time.sleep(0.001)
    laps.step()
print(laps.summary())
