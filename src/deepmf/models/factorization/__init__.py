"""Methods of linear algebra: ALS, OptSpace, RankK, RDMC and ODMC."""
