from vem import networks as arithmetic


def test_a_perceptron_by_hand():
    # 3·5 + 5·2 = 25 multiplications and as many additions
    assert arithmetic.forward((3, 5, 2)) == 50
    assert arithmetic.trained((3, 5, 2)) == 3 * 50 - 30
    assert arithmetic.passed((3, 5, 2)) == 100
