"""Invented names for generated matrices: people for rows, film titles for columns."""

from __future__ import annotations

from math import gcd

_FIRST_NAMES = """
    Ada Aino Amara Anton Asel Bela Bruno Carmen Chidi Clara Dalia Daniel Dara Edith Elif Emil Esra Farah
    Felix Freya Gita Hana Hugo Ilse Imani Ines Ivo Jana Jonas Kaito Karim Kofi Lars Leila Lena Lucia Malik
    Marta Mei Milan Nadia Nils Noor Olga Omar Petra Priya Rafael Rosa Samir Sanna Selma Tariq Tomas Uma
    Vera Wanda Yusuf Zoe
"""
_LAST_NAMES = """
    Abara Adler Aguilar Bakker Banerjee Berg Castro Cermak Conti Dahl Delgado Diallo Duarte Eriksen Farkas
    Ferrer Fischer Fontaine Garcia Gupta Haddad Halonen Hoffman Horvat Ibrahim Iyer Jansen Kaplan Kaya
    Keita Kimura Kovacs Lindqvist Lopez Marin Mensah Moreau Nakamura Novak Nowak Okafor Olsen Osei Park
    Petrov Quist Rahman Ricci Romero Sato Silva Sorensen Suzuki Tanaka Toth Umarov Vega Vidal Weber Yilmaz
    Zhang
"""
_ADJECTIVES = """
    Amber Ancient Autumn Bitter Blind Borrowed Brass Bright Broken Burning Careful Clever Copper Crooked
    Distant Drifting Eastern Electric Empty Faithful Fallen Final Floating Foreign Forgotten Frozen Gentle
    Hidden Hollow Honest Hungry Idle Invisible Iron Ivory Late Lonely Lost Lucky Marble Midnight Nameless
    Narrow Northern Painted Paper Patient Quiet Restless Scarlet Second Secret Silent Silver Sleeping
    Stolen Velvet Wandering Winter
"""
_NOUNS = """
    Afternoon Apprentice Archive Balcony Baker Bridge Cartographer Chapel Chorus Clockmaker Coast Country
    Courier Debt Detective Embassy Engine Expedition Ferry Fiddler Garden Gardener Gate Glacier Guest
    Harbour Harvest Horizon Hotel Inheritance Island Journey Kitchen Lantern Letter Library Lighthouse
    Meadow Messenger Mirror Mill Neighbour Orchard Orchestra Passenger Pianist Promise River Season Shore
    Signal Station Stranger Summer Tailor Theatre Tide Tunnel Valley Visitor Window
"""


def person_names(count: int) -> list[str]:
    """Return that many different invented people; a numeral follows where the names run out.

    >>> person_names(3)
    ['Ada Abara', 'Imani Romero', 'Samir Mensah']
    """
    return _combined(_FIRST_NAMES, _LAST_NAMES, count, prefix="")


def film_titles(count: int) -> list[str]:
    """Return that many different invented film titles; a numeral follows where the titles run out.

    >>> film_titles(3)
    ['The Amber Afternoon', 'The Forgotten Season', 'The Scarlet Library']
    """
    return _combined(_ADJECTIVES, _NOUNS, count, prefix="The ")


def _combined(first_words: str, second_words: str, count: int, *, prefix: str) -> list[str]:
    firsts, seconds = first_words.split(), second_words.split()
    n_pairs = len(firsts) * len(seconds)
    step = round(0.42 * n_pairs)  # far enough that neighbours share no word
    while gcd(step, n_pairs) > 1:  # coprime, so that n_pairs steps visit every pair once
        step += 1
    pairs = [divmod(step * number % n_pairs, len(seconds)) for number in range(min(count, n_pairs))]
    names = [f"{prefix}{firsts[first]} {seconds[second]}" for first, second in pairs]
    rounds, rest = divmod(count, n_pairs)
    for numeral in range(2, rounds + 2):
        names += [f"{name} {numeral}" for name in names[: n_pairs if numeral <= rounds else rest]]
    return names
