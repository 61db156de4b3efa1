"""What is told to those who watch. `news` turns the moves of a transaction into events, which are written with them; `feed` gives
them to the streams of this process; `stream` is one caller's."""
