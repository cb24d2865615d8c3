from lapwing.bench.doctor import clean_in

CLEAN = clean_in()
